//! Tests of the numbers in decisions and verdicts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;
use std::time::Duration;

use tidegate_core::layers::ShardedStore;
use tidegate_core::{
    Answer, Call, Charge, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Operation, Outcome,
    Policy, PolicyVerdict, Store, Timestamp, Verdict,
};

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Returns a verdict on a policy with a limit of 9.
fn verdict(outcome: Outcome, remaining: u64, retry: Option<Duration>, reset: u64) -> Verdict {
    Verdict::new(outcome, 9)
        .with_remaining(remaining)
        .with_retry_after(retry)
        .with_reset_after(micros(reset))
}

fn allowed() -> Verdict {
    verdict(Outcome::Allowed, 4, Some(Duration::ZERO), 5_000_000)
}

fn denied(retry: u64) -> Verdict {
    verdict(Outcome::Denied, 1, Some(micros(retry)), 5_000_000)
}

fn blocked(span: u64) -> Verdict {
    verdict(Outcome::Blocked, 1, Some(micros(span)), 5_000_000).with_block(micros(span))
}

#[test]
fn a_verdict_has_the_numbers_that_it_was_built_with() {
    let verdict = denied(7);
    assert_eq!((verdict.outcome(), verdict.limit(), verdict.remaining()), (Outcome::Denied, 9, 1));
    assert_eq!(
        (verdict.retry_after(), verdict.reset_after()),
        (Some(micros(7)), micros(5_000_000))
    );
    assert_eq!((verdict.blocked_for(), verdict.is_shadow()), (Duration::ZERO, false));
    assert_eq!(verdict.with_retry_after(None).retry_after(), None);
    let plain = Verdict::new(Outcome::Denied, 9);
    assert_eq!((plain.remaining(), plain.retry_after()), (0, Some(Duration::ZERO)));
    assert_eq!(plain.reset_after(), Duration::ZERO);

    // Durations are rounded up to microseconds.
    let half = Duration::from_nanos(1_500);
    assert_eq!(verdict.with_retry_after(Some(half)).retry_after(), Some(micros(2)));
    assert_eq!(verdict.with_reset_after(half).reset_after(), micros(2));
    assert_eq!(verdict.with_block(half).blocked_for(), micros(2));

    // Nothing remains while the subject is blocked.
    let verdict = verdict.with_block(micros(3)).with_block(micros(2));
    let numbers = (verdict.outcome(), verdict.remaining(), verdict.blocked_for());
    assert_eq!(numbers, (Outcome::Denied, 0, micros(2)));
    let verdict = verdict.with_block(Duration::ZERO);
    assert_eq!(
        (verdict.outcome(), verdict.remaining(), verdict.blocked_for().is_zero()),
        (Outcome::Denied, 0, true)
    );
    assert_eq!(allowed().with_block(Duration::ZERO), allowed());
    assert_eq!(blocked(3).outcome(), Outcome::Blocked);
}

#[test]
fn a_verdict_in_shadow_keeps_its_outcome() {
    for verdict in [allowed(), denied(7), blocked(7)] {
        for shadow in [verdict.in_shadow(), verdict.in_shadow().in_shadow()] {
            assert!(shadow.is_shadow());
            assert_ne!(shadow, verdict);
            assert_eq!(shadow.outcome(), verdict.outcome());
            assert_eq!(
                (shadow.remaining(), shadow.blocked_for()),
                (verdict.remaining(), verdict.blocked_for())
            );
            assert!(Decision::one(shadow).is_allowed());
        }
    }
}

#[test]
fn a_decision_is_denied_by_each_enforced_verdict_that_does_not_admit() {
    let (no, yes, ban) = (denied(1), allowed(), blocked(1));
    for (verdicts, refusing) in [
        (vec![], &[][..]),
        (vec![yes], &[]),
        (vec![no], &[0]),
        (vec![ban], &[0]),
        (vec![yes, ban], &[1]),
        (vec![no, yes], &[0]),
        (vec![no, no], &[0, 1]),
        (vec![yes, no.in_shadow()], &[]),
        (vec![no, yes.in_shadow(), ban.in_shadow(), ban], &[0, 3]),
        (vec![yes, yes, yes, yes, no], &[4]),
        (vec![yes, yes, ban.in_shadow()], &[]),
    ] {
        let decision = Decision::new(verdicts.clone());
        assert_eq!(decision.verdicts(), verdicts);
        assert_eq!(decision.refused_by().collect::<Vec<_>>(), refusing);
        assert_eq!(decision.is_denied(), !refusing.is_empty());
        assert_eq!(decision.is_allowed(), refusing.is_empty());
    }
}

#[test]
fn a_decision_waits_for_its_slowest_enforced_verdict() {
    for (verdicts, wait) in [
        (vec![], Some(0)),
        (vec![allowed()], Some(0)),
        (vec![denied(3), denied(7)], Some(7)),
        (vec![denied(3), denied(7).in_shadow()], Some(3)),
        (vec![denied(7), allowed(), blocked(5)], Some(7)),
        (vec![denied(7), denied(7).with_retry_after(None)], None),
    ] {
        assert_eq!(Decision::new(verdicts).retry_after(), wait.map(micros));
    }
}

#[test]
fn whole_seconds_to_wait_are_rounded_up_and_0_only_if_admitted() {
    for (wait, secs) in [(0, 1), (1, 1), (1_000_000, 1), (1_000_001, 2), (7_000_000, 7)] {
        assert_eq!(Decision::one(denied(wait)).retry_after_secs(), Some(secs), "{wait}");
    }
    assert_eq!(Decision::one(allowed()).retry_after_secs(), Some(0));
    assert_eq!(Decision::one(denied(1).with_retry_after(None)).retry_after_secs(), None);
}

#[test]
fn decisions_are_equal_iff_all_their_parts_are() {
    let (one, second) = (Decision::one(allowed()), Duration::from_secs(1));
    let degraded = |answer| Degraded::new(answer, ErrorKind::Unavailable);
    let fell_back = degraded(DegradedAnswer::FellBack);
    assert_eq!(one.clone().with_wait(Duration::ZERO), one);
    assert_eq!(one.clone().with_wait(second).with_wait(Duration::ZERO), one);
    let others = [
        Decision::new([]),
        Decision::one(denied(1)),
        Decision::new([allowed(), allowed()]),
        Decision::new([allowed(), denied(1)]),
        Decision::new([allowed(), allowed(), allowed()]),
        one.clone().with_wait(second),
        one.clone().degraded_by(fell_back.clone()),
        one.clone().degraded_by(degraded(DegradedAnswer::FailedOpen)),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(&one, other);
        assert_eq!(others.iter().position(|entry| entry == other), Some(index));
    }
    assert_eq!((one.wait(), one.degraded()), (Duration::ZERO, None));
    for decision in [one, Decision::new([denied(1), allowed()]), Decision::new([allowed(); 3])] {
        let both = decision.clone().with_wait(second).degraded_by(fell_back.clone());
        assert_eq!((both.wait(), both.degraded()), (second, Some(&fell_back)));
        assert_eq!(both.verdicts(), decision.verdicts());
        assert_eq!(both.is_allowed(), decision.is_allowed());
    }
}

#[test]
fn names_and_debug_output_show_what_there_is() {
    let words =
        [Outcome::Allowed, Outcome::Denied, Outcome::Blocked].map(|outcome| outcome.to_string());
    assert_eq!(words, ["allowed", "denied", "blocked"]);
    use DegradedAnswer::{FailedClosed, FailedOpen, FellBack};
    let words = [FailedOpen, FailedClosed, FellBack].map(DegradedAnswer::as_str);
    assert_eq!(words, ["failed-open", "failed-closed", "fell-back"]);
    let decision = Decision::one(denied(7).with_block(micros(77)).in_shadow());
    let text = format!("{decision:?}");
    for part in ["Decision", "Denied", "limit: 9", "blocked: 77", "shadow: true"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("reserved_wait"), "{text}");
    let text = format!("{:?}", decision.with_wait(micros(5)));
    assert!(text.contains("reserved_wait: 5µs"), "{text}");
}

fn policy(text: &str) -> Policy {
    text.parse().unwrap()
}

fn next_after(policy: &Policy, verdict: Verdict) -> Duration {
    let decision = Decision::one(verdict);
    decision.verdicts_of([policy]).next().map(|verdict| verdict.next_after()).unwrap()
}

#[test]
fn a_verdict_with_its_policy_has_the_numbers_of_both() {
    let policies = [policy("api: fixed-window 9/10s"), policy("ip: token-bucket 1/1s burst 9")];
    let verdicts = [denied(2_000_000).with_block(micros(3_000_000)), allowed().in_shadow()];
    let decision = Decision::new(verdicts);
    let both: Vec<PolicyVerdict<'_>> = decision.verdicts_of(&policies).collect();
    assert_eq!(both.len(), 2);
    for (joined, (policy, verdict)) in both.iter().zip(policies.iter().zip(&verdicts)) {
        assert_eq!(
            (joined.policy(), joined.name(), joined.verdict()),
            (policy, policy.name(), verdict)
        );
        assert_eq!(
            (joined.outcome(), joined.is_shadow()),
            (verdict.outcome(), verdict.is_shadow())
        );
        assert_eq!((joined.limit(), joined.remaining()), (9, verdict.remaining()));
        assert_eq!(joined.retry_after(), verdict.retry_after());
        assert_eq!(joined.reset_after(), verdict.reset_after());
        assert_eq!(joined.blocked_for(), verdict.blocked_for());
    }
    assert_eq!(both.iter().map(PolicyVerdict::refuses).collect::<Vec<_>>(), [true, false]);
    let windows: Vec<_> = both.iter().map(|verdict| verdict.window().as_secs()).collect();
    assert_eq!(windows, [10, 9]);
    let denied_in_shadow = Decision::one(denied(1).in_shadow());
    assert!(!denied_in_shadow.verdicts_of(&policies[..1]).any(|verdict| verdict.refuses()));
}

#[test]
fn next_after_is_the_time_of_the_next_refill() {
    let window = policy("fixed-window 9/10s");
    let nothing_missing = verdict(Outcome::Allowed, 9, Some(Duration::ZERO), 0);
    for (verdict, next) in [
        (allowed(), 5_000_000),
        (denied(2_000_000), 2_000_000),
        (denied(7_000_000), 5_000_000),
        (denied(2_000_000).with_block(micros(6_000_000)), 2_000_000),
        (denied(7_000_000).with_block(micros(6_000_000)), 6_000_000),
        (blocked(2_000_000), 5_000_000),
        (nothing_missing, 0),
    ] {
        assert_eq!(next_after(&window, verdict), micros(next), "{verdict:?}");
    }
    // A bucket refills its missing tokens one after another. `reset_after` is the time of the last
    // token, and `next_after` is the time of the first token.
    let bucket = policy("token-bucket 1/1s burst 9");
    for (verdict, next) in [
        (allowed(), 1_000_000),
        (verdict(Outcome::Allowed, 8, Some(Duration::ZERO), 300_000), 300_000),
        (denied(2_000_000), 0),
        (denied(2_000_000).with_block(micros(3_000_000)), 2_000_000),
        (blocked(2_000_000), 5_000_000),
        (nothing_missing, 0),
    ] {
        assert_eq!(next_after(&bucket, verdict), micros(next), "{verdict:?}");
    }
    // This bucket refills 1.5 tokens per microsecond, and 6 tokens are missing. So `remaining`
    // grows by one token after 1 µs.
    let fast = policy("token-bucket 3/2us burst 9");
    let missing_6 = |reset| verdict(Outcome::Allowed, 3, Some(Duration::ZERO), reset);
    assert_eq!(next_after(&fast, missing_6(4)), micros(1));
    // This bucket has ticks of 10 µs, and 6 tokens are missing. `reset_after` is the time of the
    // sixth token. The five tokens after the first take 5/7 of a day, which is 61,714,285,710 µs
    // when rounded down to a tick.
    let coarse = policy("token-bucket 7/1d burst 52125");
    let missing_6 = Verdict::new(Outcome::Allowed, 52_125)
        .with_remaining(52_119)
        .with_reset_after(micros(74_057_142_860));
    assert_eq!(next_after(&coarse, missing_6), micros(74_057_142_860 - 61_714_285_710));
    // This bucket refills 2 tokens at the end of each second, and 6 tokens are missing. So three
    // refills are needed. The last refill is after 2.5 s, so the first is after 0.5 s.
    let intervals = policy("token-bucket 2/1s burst 9 by-interval");
    let missing_6 = verdict(Outcome::Allowed, 3, Some(Duration::ZERO), 2_500_000);
    assert_eq!(next_after(&intervals, missing_6), micros(500_000));
    // Each shard has its own bucket, so the time of the next refill is unknown. `next_after` then
    // equals `reset_after`.
    let sharded = policy("token-bucket 9/9s burst 9 shards 3");
    assert_eq!(next_after(&sharded, allowed()), micros(5_000_000));
}

/// A store that answers each call with the next verdict of a list.
#[derive(Debug)]
struct Given(Mutex<Vec<Verdict>>);

impl Store for Given {
    fn decide<'a>(&'a self, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(Ok(Decision::one(self.0.lock().unwrap().remove(0))))
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(Timestamp::EPOCH))
    }
}

#[test]
fn the_verdict_on_two_shards_has_the_sum_of_the_amounts_and_the_later_times() {
    let policy = policy("p: sliding-log 18/1m shards 2");
    let merge = |verdicts: [Verdict; 2]| {
        let store = ShardedStore::new(Given(Mutex::new(verdicts.to_vec())));
        let charges = [Charge::new(&policy, "s")];
        let merged = crate::run(store.decide(Call::new(Operation::Reset, &charges))).unwrap();
        merged.verdicts()[0]
    };
    let later = verdict(Outcome::Allowed, 5, Some(micros(8)), 6_000_000);
    let expected = Verdict::new(Outcome::Denied, 18)
        .with_remaining(6)
        .with_retry_after(Some(micros(8)))
        .with_reset_after(micros(6_000_000));
    assert_eq!(merge([denied(7), later]), expected);
    let blocked_for = |span| expected.with_block(micros(span));
    assert_eq!(merge([denied(7).with_block(micros(3)), later]), blocked_for(3));
    assert_eq!(merge([denied(7), later.with_block(micros(4))]), blocked_for(4));
    let both = [denied(7).with_block(micros(3)), later.with_block(micros(4))];
    assert_eq!(merge(both), blocked_for(4));
    let earlier = verdict(Outcome::Denied, 2, Some(Duration::ZERO), 1);
    let expected = verdict(Outcome::Allowed, 7, Some(micros(8)), 6_000_000);
    let merged = merge([later, earlier]);
    assert_eq!((merged.outcome(), merged.limit()), (Outcome::Allowed, 18));
    assert_eq!(merged.remaining(), expected.remaining());
    assert_eq!(merged.retry_after(), expected.retry_after());
    assert_eq!(merged.reset_after(), expected.reset_after());
}
