//! Properties of expiry and keys: a state is kept until it has recovered, and belongs to one
//! subject.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Charge, Operation};

use super::fixture::Fixture;
use super::harness::{START, case, cases, each, each_case, policy};
use super::report::{check, check_eq};
use crate::generate::{confusable_pair, hostile_subject};

/// Without defects B11 and B15, a verdict contains the time at which the state will have recovered.
/// This time is not later than the policy allows.
///
/// This property checks only the verdict. The tests of each store also check that the store drops
/// the state in time.
pub(super) fn b11_b15_every_state_ends_within_the_stated_bound<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        for step in 0..30 {
            harness.at(step * 3);
            let verdict = harness.does(Operation::Acquire, &policy, 1).await;
            let max = policy.max_retention();
            check!(verdict.reset_after() > Duration::ZERO, "{policy}");
            check!(verdict.reset_after() <= max, "{policy}: {verdict:?}");
        }
    });
}

/// Without defect B12, the second of two calls at the same instant counts the charge of the first
/// call, even if the state recovers within a microsecond.
pub(super) fn b12_the_second_call_sees_the_first<F: Fixture>(fixture: &F) {
    for text in [
        "p: token-bucket 1000000/1s burst 1",
        "p: gcra 1000000/1s burst 1",
        "p: token-bucket 1000003/1s burst 1",
        "p: token-bucket 1/1us burst 1 by-interval",
        "p: fixed-window 1/1us",
        "p: fixed-window 1/1us anchored",
        "p: sliding-log 1/1us",
        "p: sliding-counter 1/1us",
    ] {
        case(fixture, async |harness| {
            let policy = policy(text);
            for step in 0..50 {
                // Each step must begin with a recovered state. The steps are 2 µs apart, because a
                // sliding counter needs two windows to recover.
                harness.at(step * 2);
                harness.take(&policy, 1).await;
                let _ = harness.refused(&policy, 1).await;
            }
        });
    }
}

/// Checks that a state recovers exactly when the `reset_after` of a verdict ends, and not 1 µs
/// earlier. Without defect B13 (a TTL that is too short), a store keeps the state until then.
pub(super) fn b13_a_state_lives_until_it_no_longer_matters<F: Fixture>(fixture: &F) {
    for policy in each() {
        for (used, at) in [(1, 0), (5, 0), (3, 7), (5, 9)] {
            case(fixture, async |harness| {
                harness.at(at);
                harness.take(&policy, used).await;
                let reset = harness.does(Operation::Peek, &policy, 0).await.reset_after();
                let end = at + u64::try_from(reset.as_micros()).expect("short");
                harness.at(end - 1);
                let before = harness.does(Operation::Peek, &policy, 0).await;
                check_eq!(before.reset_after(), Duration::from_micros(1), "{policy}");
                harness.at(end);
                let after = harness.does(Operation::Peek, &policy, 0).await;
                check_eq!(after.reset_after(), Duration::ZERO, "{policy}");
                check_eq!(after.remaining(), 5, "{policy}");
            });
        }
    }
    case(fixture, async |harness| {
        // A sliding counter counts a charge for up to two windows.
        let counter = policy("p: sliding-counter 10/1h");
        let hour = 3_600_000_000;
        let start = START / hour * hour + hour;
        harness.set(start);
        harness.take(&counter, 10).await;
        harness.set(start + hour);
        check_eq!(harness.remaining(&counter).await, 0);
        harness.set(start + hour + hour * 9 / 10);
        check_eq!(harness.remaining(&counter).await, 9);
        harness.set(start + 2 * hour - 1);
        check_eq!(harness.remaining(&counter).await, 9);
    });
}

/// Checks that a fresh, a recovered and a reset state return the same answers to all later calls.
pub(super) fn fresh_recovered_and_reset_keys_decide_alike<F: Fixture>(fixture: &F) {
    for policy in each() {
        for at in [40, 43] {
            case(fixture, async |harness| {
                let charge = |subject| Charge::new(&policy, subject);
                for subject in ["recovered", "reset"] {
                    let _ = harness.ask(Operation::Acquire, &[charge(subject).cost(4)]).await;
                }
                harness.at(at);
                let _ = harness.ask(Operation::Acquire, &[charge("reset").cost(5)]).await;
                let _ = harness.ask(Operation::Reset, &[charge("reset")]).await;
                for step in 0..40 {
                    harness.at(at + step);
                    let mut answers = vec![];
                    for subject in ["fresh", "recovered", "reset"] {
                        answers.push(harness.ask(Operation::Acquire, &[charge(subject)]).await);
                    }
                    // Under a phased policy, the windows of different subjects end at different
                    // times, so the answers for these subjects differ.
                    if !policy.to_string().contains("phased") {
                        check_eq!(
                            answers[0],
                            answers[1],
                            "{policy}: a recovered state answers like a fresh one"
                        );
                        check_eq!(
                            answers[0],
                            answers[2],
                            "{policy}: a reset state answers like a fresh one"
                        );
                    }
                }
            });
        }
    }
}

/// Without defect B14, requests do not extend a fixed window, whether they are admitted or denied.
/// The window ends at its planned end.
pub(super) fn b14_a_fixed_window_ends_although_hits_go_on<F: Fixture>(fixture: &F) {
    for text in ["p: fixed-window 5/10us", "p: fixed-window 5/10us anchored"] {
        case(fixture, async |harness| {
            let window = policy(text);
            let start = START / 10 * 10 + 10;
            for at in 0..100 {
                harness.set(start + at);
                let decision = harness.acquire(&window, 1).await;
                check_eq!(decision.is_allowed(), at % 10 < 5, "{text} at {at}");
            }
        });
    }
}

/// Without defect B17, different pairs of a tenant and a subject have different states, regardless
/// of their bytes.
pub(super) fn b17_no_two_subjects_share_a_state<F: Fixture>(fixture: &F) {
    let anything = (hostile_subject(), hostile_subject(), hostile_subject(), hostile_subject())
        .prop_filter_map("the same", |(a, b, c, d)| {
            ((&a, &b) != (&c, &d)).then_some([(a, b), (c, d)])
        });
    let pairs = prop_oneof![3 => confusable_pair(), 1 => anything];
    cases(fixture, pairs, async |harness, pair| {
        let log = harness.hourly("p", 3, "");
        let [left, right] = pair;
        let left = Charge::new(&log, &left.1).tenant(&left.0).cost(3);
        let right = Charge::new(&log, &right.1).tenant(&right.0).cost(3);
        for charge in [left, right] {
            if harness.ask(Operation::Acquire, &[charge]).await.is_denied() {
                return Err("two subjects share a state".to_owned());
            }
        }
        let _ = harness.ask(Operation::Reset, &[left]).await;
        if harness.ask(Operation::Acquire, &[right.cost(1)]).await.is_allowed() {
            return Err("a reset of one subject resets another".to_owned());
        }
        Ok(())
    });
}

/// Without defect B17, different policies have different states. For example, the policy `a` with
/// the subject `b.c` and the policy `a.b` with the subject `c` share no state.
pub(super) fn b17_no_two_policies_share_a_state<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let keys: [(&str, &[u8], &[u8]); 21] = [
            ("a", b"", b"b.c"),
            ("a.b", b"", b"c"),
            ("a", b"b", b"c"),
            ("a", b"c", b"b"),
            ("a_b", b"", b"c"),
            ("a", b"", b"b_c"),
            ("a-b", b"", b"c"),
            ("a", b"", b"b-c"),
            ("a", b"", b""),
            ("a", b"a", b""),
            ("a", b"", b"a"),
            ("a", b"", b"A"),
            ("A", b"", b"a"),
            ("a", b"", b"\0"),
            ("a", b"\0", b""),
            ("a", b"", b"a\0"),
            ("a", b"", b"\xff"),
            ("a", b"", b"\xfe"),
            ("a", b"\xff", b""),
            ("a", b"", b"\xc3\xbf"),
            ("a", b"", b"{}"),
        ];
        for (name, tenant, subject) in keys {
            let log = harness.hourly(name, 1, "");
            let charge = Charge::new(&log, subject).tenant(tenant);
            let first = harness.ask(Operation::Acquire, &[charge]).await;
            check!(first.is_allowed(), "{name:?} {tenant:?} {subject:?}");
            let second = harness.ask(Operation::Acquire, &[charge]).await;
            check!(second.is_denied(), "{name:?} {tenant:?} {subject:?}");
        }
    });
}

/// Without defect B17, two subjects of 1 MiB have different states, even if only their last bytes
/// differ. The same is true of tenants. A longer subject or tenant is an error.
pub(super) fn b17_subjects_are_as_long_as_they_may_be<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let log = harness.hourly("p", 1, "");
        let longest = vec![b'x'; 1 << 20];
        let mut other = longest.clone();
        other[(1 << 20) - 1] = b'y';
        for subject in [&longest, &other] {
            let charge = Charge::new(&log, subject);
            check!(harness.ask(Operation::Acquire, &[charge]).await.is_allowed());
            let charge = Charge::new(&log, "s").tenant(subject);
            check!(harness.ask(Operation::Acquire, &[charge]).await.is_allowed());
        }
        let too_long = vec![b'x'; (1 << 20) + 1];
        for charge in [Charge::new(&log, &too_long), Charge::new(&log, "s").tenant(&too_long)] {
            let error = harness.try_ask(Operation::Acquire, &[charge]).await;
            let kind = error.expect_err("too long").kind();
            check_eq!(kind, tidegate_core::ErrorKind::InvalidCall);
        }
    });
}

/// Without defect B19, a reset removes the state and the block of the named subject, and changes
/// nothing for other subjects.
pub(super) fn b19_a_reset_is_of_one_subject<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let charge = |subject| [Charge::new(&policy, subject).cost(5)];
        for subject in ["a", "b", "ab", "*"] {
            let _ = harness.ask(Operation::Acquire, &charge(subject)).await;
        }
        let span = Duration::from_secs(60);
        let _ = harness.ask(Operation::Block { span }, &charge("a")).await;
        for subject in ["*", "a"] {
            let after = harness.ask(Operation::Reset, &charge(subject)).await;
            let verdict = after.verdicts()[0];
            check_eq!(verdict.remaining(), 5, "{policy}");
            check_eq!(verdict.reset_after(), Duration::ZERO, "{policy}");
        }
        for subject in ["b", "ab"] {
            check!(harness.ask(Operation::Acquire, &charge(subject)).await.is_denied());
        }
        check!(harness.ask(Operation::Acquire, &charge("a")).await.is_allowed());
    });
}
