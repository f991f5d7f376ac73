//! Tests of login attempts, which are counted only if they fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use tidegate_core::{
    Attempt, Decision, DenyCache, ErrorKind, Limiter, ManualClock, MultiRequest, OnFailure,
    Operation, Outcome, Policy, Store, StoreExt,
};
use tidegate_testkit::ModelStore;

use crate::run;
use crate::stubs::{Mood, Stub};

const ACCOUNT: &str = "account: sliding-log 5/15m block 1m x4 up to 1d forget 7d count-failures";
const ADDRESS: &str = "address: sliding-log 50/15m block 1m count-failures";

fn limiter<S: Store>(store: S) -> Limiter<S> {
    Limiter::new(store, [ACCOUNT.parse().unwrap(), ADDRESS.parse().unwrap()]).unwrap()
}

fn model() -> (ManualClock, Limiter<ModelStore>) {
    let clock = ManualClock::default();
    (clock.clone(), limiter(ModelStore::new(clock)))
}

fn login<S: Store>(limiter: &Limiter<S>) -> MultiRequest<'_, S> {
    limiter.by("account", "alice").by("address", "203.0.113.9")
}

async fn attempt<S: Store + 'static>(limiter: &Limiter<S>) -> Attempt<S> {
    login(limiter).attempt().await.unwrap()
}

async fn peek<S: Store>(limiter: &Limiter<S>, policy: &str) -> Decision {
    let subject = if policy == "account" { "alice" } else { "203.0.113.9" };
    limiter.by(policy, subject).peek().await.unwrap()
}

async fn remaining<S: Store>(limiter: &Limiter<S>) -> [u64; 2] {
    let mut remaining = [0; 2];
    for (policy, remaining) in ["account", "address"].into_iter().zip(&mut remaining) {
        *remaining = peek(limiter, policy).await.verdicts()[0].remaining();
    }
    remaining
}

#[test]
fn a_hundred_guesses_at_the_same_time_do_not_pass_the_limit() {
    run(async {
        let (_, limiter) = model();
        let mut attempts = vec![];
        for _ in 0..100 {
            attempts.push(attempt(&limiter).await);
        }
        assert_eq!(attempts.iter().filter(|attempt| attempt.is_allowed()).count(), 5);
        for attempt in attempts {
            attempt.fail().await.unwrap();
        }
        assert_eq!(remaining(&limiter).await, [0, 45]);
    });
}

/// The sixth login is refused, but is not an offense.
#[test]
fn six_correct_logins_at_the_same_time_lock_no_account() {
    run(async {
        let (_, limiter) = model();
        let mut attempts = vec![];
        for _ in 0..6 {
            attempts.push(attempt(&limiter).await);
        }
        assert_eq!(attempts[5].decision().verdicts()[0].outcome(), Outcome::Denied);
        assert_eq!(attempts[5].decision().verdicts()[0].block_level(), 0);
        let mut passed = vec![];
        for attempt in attempts {
            passed.push(attempt.succeed().await.unwrap());
        }
        assert_eq!(passed, [true, true, true, true, true, false]);
        assert_eq!(remaining(&limiter).await, [5, 50]);
        assert!(attempt(&limiter).await.succeed().await.unwrap());
    });
}

#[test]
fn an_attempt_that_is_dropped_or_crashes_has_failed() {
    run(async {
        let (clock, limiter) = model();
        drop(attempt(&limiter).await);
        assert_eq!(remaining(&limiter).await, [4, 49]);
        std::mem::forget(attempt(&limiter).await);
        let held = peek(&limiter, "account").await;
        assert_eq!(held.unspent(), [Some(1)], "the attempt is open");
        clock.advance(Duration::from_secs(60));
        assert_eq!(peek(&limiter, "account").await.unspent(), [Some(0)]);
        assert_eq!(remaining(&limiter).await, [3, 48]);
        let late = attempt(&limiter).await;
        clock.advance(Duration::from_secs(119));
        assert!(late.succeed().await.unwrap());
        assert_eq!(remaining(&limiter).await, [3, 48]);
    });
}

/// The policy blocks the account for 1, 4 and 16 minutes.
#[test]
fn failures_lock_the_account_for_longer_each_time() {
    run(async {
        let (clock, limiter) = model();
        for _ in 0..5 {
            attempt(&limiter).await.fail().await.unwrap();
        }
        for (level, minutes) in [(1, 1), (2, 4), (3, 16)] {
            let refused = attempt(&limiter).await;
            let account = refused.decision().verdicts()[0];
            assert_eq!(account.block_level(), level);
            assert_eq!(account.blocked_for(), Duration::from_secs(60 * minutes));
            assert!(!refused.succeed().await.unwrap(), "the right password does not help");
            assert!(peek(&limiter, "address").await.is_allowed());
            clock.advance(account.blocked_for());
        }
    });
}

#[test]
fn a_success_clears_the_account_by_option() {
    run(async {
        let (clock, limiter) = model();
        for _ in 0..5 {
            attempt(&limiter).await.fail().await.unwrap();
        }
        attempt(&limiter).await.fail().await.unwrap();
        clock.advance(Duration::from_secs(60 * 15));
        let open = attempt(&limiter).await;
        let right = attempt(&limiter).await;
        assert_eq!(right.decision().verdicts()[0].block_level(), 1);
        assert!(right.succeed_and_clear("account").await.unwrap());
        let cleared = peek(&limiter, "account").await.verdicts()[0];
        assert_eq!((cleared.remaining(), cleared.block_level()), (5, 0));
        open.fail().await.unwrap();
        assert_eq!(remaining(&limiter).await[0], 4, "an open attempt counts when it fails");

        for (policy, part) in [("address2", "no policy `address2`"), ("", "no policy ``")] {
            let error = attempt(&limiter).await.succeed_and_clear(policy).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCall);
            assert!(error.to_string().contains(part), "{error}");
        }
        let only_address = limiter.by("address", "203.0.113.9").attempt().await.unwrap();
        let error = only_address.succeed_and_clear("account").await.unwrap_err();
        assert!(error.to_string().contains("no charge to the policy `account`"), "{error}");
    });
}

/// A wrong password and a locked account cause the same calls, so a client cannot measure which
/// one it was.
#[test]
fn a_refused_attempt_causes_as_many_calls_as_a_wrong_password() {
    run(async {
        let stub = Stub::new(&ManualClock::default());
        let limiter = limiter(stub.clone());
        for locked in [false, false, false, false, false, true, true] {
            let attempt = attempt(&limiter).await;
            assert_eq!(attempt.is_allowed(), !locked);
            attempt.fail().await.unwrap();
            let settlement = if locked { Operation::Peek } else { Operation::Settle };
            assert_eq!(stub.take_calls(), [[Operation::Hold], [settlement]]);
        }
        for succeed in [true, false] {
            let attempt = attempt(&limiter).await;
            match succeed {
                true => drop(attempt.succeed().await.unwrap()),
                false => drop(attempt.succeed_and_clear("account").await.unwrap()),
            }
            assert_eq!(stub.take_calls(), [[Operation::Hold], [Operation::Peek]]);
        }
    });
}

/// If a deny cache answered for the store, a client could measure that the account is locked.
#[test]
fn a_deny_cache_sends_each_attempt_to_the_store() {
    run(async {
        let clock = ManualClock::default();
        let stub = Stub::new(&clock);
        let limiter = limiter(stub.clone().deny_cache(DenyCache::new().clock(clock.clone())));
        for _ in 0..9 {
            attempt(&limiter).await.fail().await.unwrap();
            assert_eq!(stub.take_calls().len(), 2);
        }
    });
}

#[test]
fn a_store_that_is_away_admits_an_attempt_only_by_a_fallback() {
    run(async {
        let clock = ManualClock::default();
        let stub = Stub::new(&clock);
        stub.set(Mood::Down(ErrorKind::Unavailable));
        let error = login(&limiter(stub.clone())).attempt().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let limiter = limiter(stub.clone().on_failure(OnFailure::open().clock(clock.clone())));
        let degraded = attempt(&limiter).await;
        assert!(degraded.is_allowed());
        stub.set(Mood::Up);
        degraded.fail().await.unwrap();
        assert_eq!(remaining(&limiter).await, [4, 49], "the failure is charged afterwards");
    });
}

#[test]
fn count_failures_is_a_setting_of_a_policy() {
    let text = "p: gcra 8/1s burst 8 shards 2 by-subject count-failures max-open-holds 7 shadow";
    let policy: Policy = text.parse().unwrap();
    assert_eq!(policy.to_string(), text);
    assert!(policy.counts_failures() && policy.stores_holds() && !policy.refunds_lapsed());
    assert!(policy.shares().iter().all(Policy::counts_failures));
    let scaled = policy.scaled_to("1/2".parse().unwrap()).unwrap().unwrap();
    assert!(scaled.counts_failures() && scaled.max_open_holds() == 7);
    let built: Policy = "p: gcra 8/1s".parse().unwrap();
    let built = built.refund_lapsed().count_failures();
    assert_eq!(built, "p: gcra 8/1s count-failures".parse().unwrap(), "the last setting wins");
    let slots: Policy = "concurrent 3 lease 1s".parse().unwrap();
    assert!(!slots.clone().count_failures().counts_failures());
    for (text, message) in [
        ("gcra 8/1s count-failures refund-lapsed", "exclude each other"),
        ("gcra 8/1s refund-lapsed count-failures", "exclude each other"),
        ("gcra 8/1s count-failures count-failures", "given twice"),
        ("gcra 8/1s count-failure", "did you mean `count-failures`"),
        ("concurrent 3 lease 1s count-failures", "is not an option of concurrent"),
    ] {
        let error = text.parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn a_policy_with_a_block_must_count_failures() {
    run(async {
        let store = ModelStore::new(ManualClock::default());
        let texts = ["a: sliding-log 5/15m block 1m", "b: sliding-log 5/15m"];
        let limiter = Limiter::new(store, texts.map(|text| text.parse().unwrap())).unwrap();
        let error = limiter.by("b", "x").by("a", "x").attempt().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        assert!(error.to_string().contains("add `count-failures`"), "{error}");
        assert!(limiter.by("b", "x").attempt().await.unwrap().succeed().await.unwrap());
        assert!(limiter.subject("x").attempt().await.is_err());
    });
}
