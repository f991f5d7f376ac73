//! Tests of requests on several subjects, and of the verdict of each policy.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::layers::Layer;
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, Error, ErrorKind, Limiter, ManualClock, Operation,
    Policy, Store, StoreExt, Subject, Timestamp,
};
use tidegate_memory::MemoryStore;
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{Kind, policy};

fn parse(text: &str) -> Policy {
    text.parse().unwrap()
}

fn limiter(clock: &ManualClock) -> Limiter<ModelStore> {
    let texts =
        ["ip: fixed-window 3/1m anchored", "user: gcra 1/1s burst 100", "all: sliding-log 9/1m"];
    Limiter::new(ModelStore::new(clock.clone()), texts.map(parse)).unwrap()
}

#[test]
fn each_policy_is_charged_for_its_own_subject_and_cost_or_none_is() {
    crate::run(async {
        let limiter = limiter(&ManualClock::default());
        let ip: IpAddr = "2001:db8::1".parse().unwrap();
        let request = limiter.by("ip", ip).by("user", 7_u64).cost(40).by("all", ());
        let remaining = |decision: &Decision| {
            request
                .verdicts(decision)
                .map(|verdict| (verdict.name().to_owned(), verdict.remaining()))
                .collect::<Vec<_>>()
        };
        let expected = |ip, user, all| {
            [("ip", ip), ("user", user), ("all", all)]
                .map(|(name, n)| (name.to_owned(), n))
                .to_vec()
        };
        let first = request.acquire().await.unwrap();
        assert_eq!((first.is_allowed(), remaining(&first)), (true, expected(2, 60, 8)));
        assert_eq!(remaining(&request.acquire().await.unwrap()), expected(1, 20, 7));
        let third = request.acquire().await.unwrap();
        assert_eq!((third.is_denied(), remaining(&third)), (true, expected(1, 20, 7)));
        let refusing: Vec<_> = request
            .verdicts(&third)
            .filter(|verdict| verdict.refuses())
            .map(|verdict| verdict.name())
            .collect();
        assert_eq!(refusing, ["user"]);
        assert_eq!(remaining(request.refund().await.unwrap().decision()), expected(2, 60, 8));
        assert_eq!(remaining(&request.peek().await.unwrap()), expected(2, 60, 8));
        // The subject of the request is the number 7. A charge with the text "7" as its subject
        // uses the same state.
        let user = Charge::new(limiter.policy("user").unwrap(), "7");
        let peek = limiter.store().decide(Call::new(Operation::Peek, &[user])).await.unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 60);
        request.reset().await.unwrap();
        assert_eq!(remaining(&request.peek().await.unwrap()), expected(3, 100, 9));
        request.block(Duration::from_secs(1)).await.unwrap();
        let blocked = request.block_at_least(Duration::from_millis(1)).await.unwrap();
        assert_eq!(blocked.decision().retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(request.peek().await.unwrap().refused_by().count(), 3);
    });
}

#[test]
fn a_ban_keeps_the_later_end_and_an_unban_forgets_the_offenses() {
    crate::run(async {
        let store = MemoryStore::builder().clock(ManualClock::default()).build();
        let policy = parse("login: fixed-window 1/1d block 1m x4 up to 1d forget 7d");
        let limiter = Limiter::new(store, [policy]).unwrap();
        let mallory = || limiter.by("login", "mallory");
        let (day, week) = (Duration::from_secs(86_400), Duration::from_secs(7 * 86_400));
        let _ = mallory().acquire().await.unwrap();
        assert_eq!(mallory().acquire().await.unwrap().verdicts()[0].block_level(), 1);
        for (span, end) in [(week, week), (day, week), (2 * week, 2 * week)] {
            let banned = mallory().ban(span, "stolen passwords").await.unwrap();
            let verdict = banned.decision().verdicts()[0];
            assert_eq!((verdict.blocked_for(), verdict.block_level()), (end, 1));
        }
        let verdict = mallory().unban().await.unwrap().decision().verdicts()[0];
        assert_eq!((verdict.blocked_for(), verdict.block_level()), (Duration::ZERO, 0));
        assert_eq!(verdict.remaining(), 0, "the usage stays");
        assert_eq!(mallory().acquire().await.unwrap().verdicts()[0].block_level(), 1);

        let everything = limiter.subject("eve").ban(day, "a").await.unwrap();
        assert_eq!(everything.decision().verdicts()[0].blocked_for(), day);
        limiter.subject("eve").unban().await.unwrap();
        assert!(limiter.acquire("eve").await.unwrap().is_allowed());

        let long = "é".repeat(65);
        for (span, reason, message) in [
            (Duration::ZERO, "a", "the ban lasts 0s; it must last at least 1us"),
            (Duration::MAX, "a", "it must last at least 1us and at most"),
            (day, "", "the reason of the ban has 0 bytes; it must have 1 to 128"),
            (day, &long, "the reason of the ban has 130 bytes; it must have 1 to 128"),
            (day, "a\nb", "the reason of the ban contains '\\n'"),
        ] {
            let error = mallory().ban(span, reason).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCall);
            assert!(error.to_string().contains(message), "{error}");
        }
        assert_eq!(mallory().peek().await.unwrap().verdicts()[0].blocked_for().as_secs(), 60);
    });
}

#[test]
fn a_policy_that_is_not_named_is_not_charged() {
    crate::run(async {
        let limiter = limiter(&ManualClock::default());
        for _ in 0..9 {
            assert!(limiter.by("all", ()).acquire().await.unwrap().is_allowed());
        }
        assert!(limiter.by("all", ()).acquire().await.unwrap().is_denied());
        assert!(limiter.by("ip", "a").by("user", "a").acquire().await.unwrap().is_allowed());
    });
}

#[test]
fn a_policy_of_the_request_alone_shares_the_state_of_its_name() {
    crate::run(async {
        let limiter = limiter(&ManualClock::default());
        let (free, pro) = (parse("user: gcra 1/1s burst 10"), parse("user: gcra 1/1s burst 200"));
        assert!(limiter.by(&free, "a").cost(10).acquire().await.unwrap().is_allowed());
        assert!(limiter.by(&free, "a").acquire().await.unwrap().is_denied());
        let decision = limiter.by(&pro, "a").acquire().await.unwrap();
        assert_eq!(decision.verdicts()[0].remaining(), 189);
    });
}

#[test]
fn a_tenant_belongs_to_the_subject_named_last() {
    crate::run(async {
        let limiter = limiter(&ManualClock::default());
        let request = limiter.by("ip", "a").tenant("acme").by("user", "a").tenant("globex");
        assert!(request.acquire().await.unwrap().is_allowed());
        let peek = async |name, tenant: &'static str| {
            let decision = limiter.by(name, "a").tenant(tenant).peek().await.unwrap();
            let verdict = &decision.verdicts()[0];
            verdict.limit() - verdict.remaining()
        };
        assert_eq!(
            [peek("ip", "acme").await, peek("ip", "").await, peek("user", "acme").await],
            [1, 0, 0]
        );
        assert_eq!(peek("user", "globex").await, 1);
    });
}

#[test]
fn an_unknown_name_is_an_error_of_every_operation_and_charges_nothing() {
    crate::run(async {
        let limiter = limiter(&ManualClock::default());
        let request = limiter.by("ip", "a").by("usre\n", "a").by("nor this", "b");
        let check = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::InvalidCall);
            assert_eq!(
                error.to_string(),
                "invalid-call: the limiter has no policy `usre\\n`, but `ip`, `user`, `all`"
            );
        };
        check(request.acquire().await.unwrap_err());
        check(request.peek().await.unwrap_err());
        check(request.refund().await.unwrap_err());
        check(request.reserve(Duration::ZERO).await.unwrap_err());
        check(request.reset().await.unwrap_err());
        check(request.block(Duration::ZERO).await.unwrap_err());
        check(request.block_at_least(Duration::ZERO).await.unwrap_err());
        check(request.ban(Duration::from_secs(1), "a").await.unwrap_err());
        check(request.unban().await.unwrap_err());
        check(request.acquire_within(Duration::ZERO).await.unwrap_err());
        let peek = limiter.by("ip", "a").peek().await.unwrap();
        assert_eq!(peek.verdicts()[0].remaining(), 3);
    });
}

/// A layer that supports only buckets.
#[derive(Debug)]
struct BucketsOnly;

impl<S: Store> Layer<S> for BucketsOnly {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        inner.decide_many(calls)
    }

    fn supports(&self, _: &S, policy: &Policy) -> Result<(), Error> {
        if policy.rule().can_reserve() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "buckets only"))
    }
}

#[test]
fn a_policy_that_the_store_does_not_support_is_an_error_of_a_request_too() {
    crate::run(async {
        let store = ModelStore::new(ManualClock::default()).layer(BucketsOnly);
        let limiter = Limiter::new(store, [parse("a: gcra 1/1s")]).unwrap();
        let window = parse("b: fixed-window 1/1s");
        let error = limiter.by("a", "s").by(&window, "s").acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(limiter.by("a", "s").acquire().await.unwrap().is_allowed());
    });
}

#[test]
fn two_different_policies_with_one_state_on_one_subject_are_an_error() {
    crate::run(async {
        let limiter = limiter(&ManualClock::default());
        let other = parse("user: gcra 2/1s burst 5");
        let error = limiter.by("user", "a").by(&other, "a").acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        // Two charges for different subjects use different states.
        assert!(limiter.by("user", "a").by("user", "b").acquire().await.unwrap().is_allowed());
        assert!(limiter.by("user", "a").by(&other, "b").acquire().await.unwrap().is_allowed());
    });
}

#[test]
fn parts_of_subjects_do_not_collide_in_a_store() {
    crate::run(async {
        let limiter = limiter(&ManualClock::default());
        let subjects = [
            Subject::from(("a:b", "c")),
            Subject::from(("a", "b:c")),
            Subject::from(("a:", "b", "c")),
        ];
        for subject in &subjects {
            assert!(limiter.by("user", subject).cost(100).acquire().await.unwrap().is_allowed());
        }
    });
}

/// A case of a property test: random acquires, and then a peek. The test checks the `next_after` of
/// the peek.
#[derive(Debug, Clone)]
struct Usage {
    policy: Policy,
    steps: Vec<(u64, u64)>,
    cost: u64,
}

fn usage() -> impl Strategy<Value = Usage> {
    let policy = Kind::any().prop_flat_map(|kind| policy(kind, "p"));
    let steps = prop::collection::vec((0..3_000_u64, 0..4_u64), 0..12);
    (policy, steps, 0..4_u64).prop_map(|(policy, steps, cost)| Usage { policy, steps, cost })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn more_remains_after_next_after_and_for_windows_and_buckets_no_earlier(usage in usage()) {
        let clock = ManualClock::default();
        clock.set(Timestamp::from_micros(1_790_000_000_000_123));
        let limiter = Limiter::new(ModelStore::new(clock.clone()), [usage.policy.clone()]).unwrap();
        let peek = |cost| -> Result<(u64, Decision), TestCaseError> {
            let peeked = limiter.subject("s").cost(cost).peek().into_ready();
            let decision = peeked.map_err(|_| TestCaseError::fail("the store must answer immediately"))?.unwrap();
            Ok((decision.verdicts()[0].remaining(), decision))
        };
        for &(pause, cost) in &usage.steps {
            clock.advance(Duration::from_micros(pause));
            let _ = crate::run(limiter.subject("s").cost(cost).acquire()).unwrap();
        }
        let (before, decision) = peek(usage.cost)?;
        let verdict = limiter.verdicts(&decision).next().unwrap();
        let (next, start) = (verdict.next_after(), clock.now());
        // Nothing refills credits. Before the subscription begins, the next time is its start.
        let limit_now = usage.policy.rule().limit_at(start.as_micros());
        prop_assume!(usage.policy.algorithm().keyword() != "credits");
        prop_assume!(limit_now > 0 || usage.policy.limit() == 0);
        prop_assert!(next <= verdict.reset_after().max(verdict.blocked_for()));
        if before >= verdict.limit() {
            prop_assert_eq!(next, Duration::ZERO);
            return Ok(());
        }
        // A refill after `Timestamp::MAX` cannot be observed, because the clock cannot advance
        // beyond this time.
        prop_assume!(start.saturating_add(next) < Timestamp::MAX);
        let is_exact = !matches!(usage.policy.rule(), tidegate_core::engine::Rule::SlidingLog(_) | tidegate_core::engine::Rule::SlidingCounter(_));
        let tick = Duration::from_micros(usage.policy.rule().tick());
        if is_exact && verdict.blocked_for().is_zero() && next > tick {
            clock.set(start.saturating_add(next).saturating_sub(tick + tick));
            prop_assert!(peek(1)?.0 <= before, "{:?} before {:?}", verdict, next);
        }
        clock.set(start.saturating_add(next));
        prop_assert!(peek(1)?.0 > before, "{:?} after {:?}", verdict, next);
    }
}

mod waiting {
    use tidegate_core::TokioClock;
    use tidegate_memory::MemoryStore;
    use tokio::time::{Instant, timeout};

    use super::*;

    fn limiter(texts: &[&str]) -> Limiter<MemoryStore<TokioClock>> {
        let store = MemoryStore::builder().clock(TokioClock::new()).build();
        Limiter::new(store, texts.iter().map(|text| parse(text))).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_on_two_subjects_waits_for_the_later_of_both() {
        for (slow, max) in [("a: gcra 1/10s", 0), ("a: fixed-window 1/10s anchored", 1_250)] {
            let limiter = limiter(&[slow, "b: gcra 1/1s burst 2"]);
            let request = limiter.by("a", "partner").by("b", "tenant");
            let start = Instant::now();
            assert!(request.until_ready().await.unwrap().wait().is_zero());
            let wait = request.until_ready().await.unwrap().wait();
            assert_eq!(wait, start.elapsed());
            let beyond = wait.checked_sub(Duration::from_secs(10)).unwrap();
            assert!(beyond <= Duration::from_millis(max), "{slow}: {wait:?}");
            // The subject of the policy `b` is charged only for the two admitted requests.
            assert!(limiter.by("b", "tenant").peek().await.unwrap().is_allowed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_refunds_each_subject() {
        let limiter = limiter(&["a: gcra 1/10s", "b: token-bucket 1/1h burst 100"]);
        let request = limiter.by("a", "partner").by("b", "tenant").cost(30);
        request.until_ready().await.unwrap();
        assert!(timeout(Duration::from_secs(3), request.until_ready()).await.is_err());
        assert_eq!(limiter.by("b", "tenant").peek().await.unwrap().verdicts()[0].remaining(), 70);
        let wait = request.until_ready().await.unwrap().wait();
        assert_eq!(wait, Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_admitted_in_time_is_an_error_immediately() {
        let limiter = limiter(&["a: gcra 1/1h", "b: sliding-log 5/1m"]);
        let start = Instant::now();
        let error = limiter.by("a", "s").by("b", "s").cost(6).until_ready().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (
                ErrorKind::WaitTooLong,
                "wait-too-long: the cost is above the limit, so that it is never admitted"
            )
        );
        limiter.by("a", "s").until_ready().await.unwrap();
        let error = limiter.by("a", "s").until_ready().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WaitTooLong);
        assert!(error.kind().is_definitely_not_charged() && !error.kind().is_invalid_request());
        let refused = limiter.by("a", "s").acquire_within(Duration::from_secs(1)).await.unwrap();
        assert!(refused.is_denied());
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(
            limiter
                .by("a", "s")
                .acquire_within(Duration::from_secs(3600))
                .await
                .unwrap()
                .is_allowed()
        );
    }
}
