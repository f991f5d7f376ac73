//! Properties of operations, blocks and shadows, and of policies that change.

use std::time::Duration;

use tidegate_core::{Charge, ErrorKind, Operation, Outcome};

use super::fixture::Fixture;
use super::harness::{START, case, each, each_case, policy};
use super::report::{check, check_eq, fail};
use crate::show;

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Checks that a peek returns the same outcome and the same wait as an acquire would return.
pub(super) fn a_peek_says_what_an_acquire_would<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        for cost in [1, 3, 2, 1, 1, 6] {
            let peek = harness.does(Operation::Peek, &policy, cost).await;
            let acquire = harness.does(Operation::Acquire, &policy, cost).await;
            check_eq!(peek.outcome(), acquire.outcome(), "{policy}, cost {cost}");
            check_eq!(peek.retry_after(), acquire.retry_after(), "{policy}, cost {cost}");
        }
    });
}

/// Checks that the calls of a batch get the same answers as calls that are made one after another.
/// Several calls of the batch use the same state.
pub(super) fn a_batch_is_answered_as_its_calls_one_by_one<F: Fixture>(fixture: &F) {
    use tidegate_core::{Call, Store};
    each_case(fixture, async |harness, policy| {
        harness.needs(&policy);
        let charge = |subject, cost| [Charge::new(&policy, subject).cost(cost)];
        let (one, two, six) = (charge("s", 1), charge("s", 2), charge("s", 6));
        let other = charge("t", 4);
        let calls = [
            Call::acquire(&one),
            Call::acquire(&other),
            Call::acquire(&six),
            Call::acquire(&[]),
            Call::acquire(&two),
            Call::new(Operation::Peek, &one),
            Call::acquire(&two),
            Call::new(Operation::Refund, &two),
            Call::acquire(&two),
            Call::acquire(&one),
        ];
        let answers = harness.store.decide_many(&calls).await;
        check_eq!(harness.store.decide_many(&[]).await.len(), 0);
        let _ = harness.ask(Operation::Reset, &one).await;
        let _ = harness.ask(Operation::Reset, &other).await;
        check_eq!(answers.len(), calls.len());
        for (place, (call, in_batch)) in calls.iter().zip(answers).enumerate() {
            let alone = harness.store.decide(*call).await;
            match (in_batch, alone) {
                (Ok(in_batch), Ok(alone)) => {
                    check_eq!(in_batch, alone, "{policy}: call {place}");
                }
                (Err(in_batch), Err(alone)) => check_eq!(in_batch.kind(), alone.kind()),
                (in_batch, alone) => fail(&format!(
                    "{policy}: the store answers {} with {} in a batch, and with {} alone",
                    show::call(call),
                    show::answer(&in_batch),
                    show::answer(&alone),
                )),
            }
        }
    });
}

/// Checks that reservations get places in a bucket's queue, in the order of the calls. If the next
/// place is more than `max_wait` in the future, a reservation is refused and gets no place.
pub(super) fn a_reservation_books_the_next_place<F: Fixture>(fixture: &F) {
    for text in ["p: token-bucket 1/10us burst 1", "p: gcra 1/10us burst 1"] {
        case(fixture, async |harness| {
            let bucket = policy(text);
            let charge = [Charge::new(&bucket, "s")];
            let reserve = |max_wait| Operation::Reserve { max_wait };
            for place in 0..4 {
                let booked = harness.ask(reserve(us(30)), &charge).await;
                check!(booked.is_allowed(), "{text}");
                check_eq!(booked.wait(), us(10 * place), "{text}");
                check_eq!(booked.retry_after(), Some(Duration::ZERO), "{text}");
            }
            for _ in 0..3 {
                let denied = harness.ask(reserve(us(39)), &charge).await;
                check!(denied.is_denied(), "{text}");
                check_eq!(denied.wait(), Duration::ZERO, "{text}");
                check_eq!(denied.retry_after(), Some(us(40)), "{text}");
            }
            harness.at(1);
            check_eq!(harness.ask(reserve(us(39)), &charge).await.wait(), us(39), "{text}");
            // A refund of a reservation frees its place.
            let _ = harness.ask(Operation::Refund, &charge).await;
            check_eq!(harness.ask(reserve(us(39)), &charge).await.wait(), us(39), "{text}");
            let never = harness.ask(reserve(Duration::MAX), &[charge[0].cost(2)]).await;
            check_eq!(never.retry_after(), None, "{text}");
        });
    }
}

/// Checks that a reservation under a policy that is not a bucket is an error, and writes nothing.
pub(super) fn reserving_what_is_no_bucket_is_unsupported<F: Fixture>(fixture: &F) {
    for policy in each().filter(|policy| !policy.rule().can_reserve()) {
        case(fixture, async |harness| {
            let bucket = super::harness::policy("bucket: token-bucket 5/1s");
            let charges = [Charge::new(&bucket, "s"), Charge::new(&policy, "s")];
            let charges = if harness.supports(&bucket) { &charges[..] } else { &charges[1..] };
            let before = harness.snapshot(charges).await;
            let reserve = Operation::Reserve { max_wait: us(9) };
            let error =
                harness.try_ask(reserve, charges).await.expect_err("a reservation needs a bucket");
            check_eq!(error.kind(), ErrorKind::Unsupported, "{policy}");
            check_eq!(harness.snapshot(charges).await, before, "{policy}");
        });
    }
}

/// Checks that a block replaces the previous block, that a block of zero lifts the block, and that
/// blocks do not change the usage.
pub(super) fn a_block_shuts_out_and_is_lifted<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.take(&policy, 2).await;
        let block = |micros| Operation::Block { span: us(micros) };
        let verdict = harness.does(block(100), &policy, 1).await;
        check_eq!(verdict.outcome(), Outcome::Blocked, "{policy}");
        check_eq!(verdict.remaining(), 0, "{policy}");
        check_eq!(verdict.retry_after(), Some(us(100)), "{policy}");
        let shorter = harness.does(block(3), &policy, 1).await;
        check_eq!(shorter.retry_after(), Some(us(3)), "{policy}");
        let denied = harness.refused(&policy, 1).await;
        check_eq!(denied.verdicts()[0].outcome(), Outcome::Blocked, "{policy}");
        let lifted = harness.does(block(0), &policy, 1).await;
        check_eq!(lifted.outcome(), Outcome::Allowed, "{policy}");
        check_eq!(lifted.remaining(), 3, "{policy}: the usage must not change");
        harness.take(&policy, 3).await;
    });
}

/// Checks that a "block at least" does not change a block that ends later, and does nothing with a
/// span of zero.
pub(super) fn a_block_of_at_least_a_span_shortens_none<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let at_least = |micros| Operation::BlockAtLeast { span: us(micros) };
        let fresh = harness.hourly("fresh", 5, "");
        let both = [Charge::new(&policy, "s"), Charge::new(&fresh, "s")];
        harness.take(&policy, 2).await;
        let before = harness.snapshot(&both).await;
        let unblocked = harness.ask(at_least(0), &both).await;
        check_eq!(unblocked.verdicts()[0].remaining(), 3, "{policy}");
        check_eq!(harness.snapshot(&both).await, before, "{policy}: a span of zero writes nothing");
        for (span, left) in [(30, 30), (10, 30), (0, 30), (29, 30), (30, 30), (31, 31)] {
            let verdict = harness.does(at_least(span), &policy, 1).await;
            check_eq!(verdict.outcome(), Outcome::Blocked, "{policy}, {span} µs");
            check_eq!(verdict.remaining(), 0, "{policy}, {span} µs");
            check_eq!(verdict.retry_after(), Some(us(left)), "{policy}, {span} µs");
        }
        let shorter = harness.does(Operation::Block { span: us(2) }, &policy, 1).await;
        check_eq!(shorter.retry_after(), Some(us(2)), "{policy}: a plain block replaces the block");
        let lifted = harness.does(Operation::Block { span: us(0) }, &policy, 1).await;
        check_eq!(lifted.remaining(), 3, "{policy}: the usage must not change");
        // Each charge of a call has its own block. When a block is over, a "block at least" sets a
        // new block.
        harness.does(at_least(50), &policy, 1).await;
        for (at, span, left) in [(20, 7, [30, 7]), (28, 5, [22, 5]), (50, 1, [1, 1])] {
            harness.at(at);
            let decision = harness.ask(at_least(span), &both).await;
            for (verdict, left) in decision.verdicts().iter().zip(left) {
                check_eq!(verdict.blocked_for(), us(left), "{policy} at {at}, {span} µs");
            }
        }
        harness.at(51);
        harness.take(&policy, 5).await;
    });
}

/// Checks that a denial blocks the subject for the time that the policy defines, and that refusals
/// during the block do not extend it.
pub(super) fn a_refusal_blocks_and_the_block_is_not_extended<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let policy = policy.block_for(us(50)).expect("within the bounds");
        let _ = harness.refused(&policy, 6).await; // A cost that never fits causes no block.
        harness.take(&policy, 4).await;
        let denied = harness.refused(&policy, 2).await;
        let verdict = denied.verdicts()[0];
        check_eq!(verdict.outcome(), Outcome::Denied, "{policy}");
        check_eq!(verdict.retry_after(), Some(us(50)), "{policy}");
        check_eq!(verdict.remaining(), 0, "{policy}");
        for at in [1, 20, 49] {
            harness.at(at);
            let denied = harness.refused(&policy, 1).await;
            let verdict = denied.verdicts()[0];
            check_eq!(verdict.outcome(), Outcome::Blocked, "{policy}");
            check_eq!(verdict.retry_after(), Some(us(50 - at)), "{policy}");
        }
        harness.at(50);
        harness.take(&policy, 1).await;
    });
}

/// Checks that a denial writes only a block, and only to the state of the policy that denied.
pub(super) fn a_penalty_is_all_that_a_denial_writes<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let strict = harness.hourly("strict", 1, " block 50us");
        harness.take(&strict, 1).await;
        let charges = [Charge::new(&policy, "s"), Charge::new(&strict, "s")];
        let denied = harness.ask(Operation::Acquire, &charges).await;
        check_eq!(denied.refused_by().collect::<Vec<_>>(), [1], "{policy}");
        check_eq!(harness.remaining(&policy).await, 5, "{policy}");
        let strict = harness.does(Operation::Peek, &strict, 1).await;
        check_eq!(strict.outcome(), Outcome::Blocked, "{policy}");
    });
}

/// Checks that a shadow counts and reports, and never refuses.
pub(super) fn a_shadow_reports_and_never_refuses<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let shadow = policy.shadow();
        let open = harness.hourly("open", 1_000, "");
        let charges = [Charge::new(&shadow, "s").cost(2), Charge::new(&open, "s")];
        let mut outcomes = vec![];
        for _ in 0..4 {
            let decision = harness.ask(Operation::Acquire, &charges).await;
            check!(decision.is_allowed(), "{shadow}");
            check!(decision.verdicts()[0].is_shadow(), "{shadow}");
            check_eq!(decision.retry_after(), Some(Duration::ZERO), "{shadow}");
            outcomes.push(decision.verdicts()[0].outcome());
        }
        use Outcome::{Allowed, Denied};
        check_eq!(outcomes, [Allowed, Allowed, Denied, Denied], "{shadow}");
        check_eq!(harness.remaining(&open).await, 996, "{shadow}: the other policies are charged");
        check_eq!(
            harness.remaining(&shadow).await,
            1,
            "{shadow}: a shadow that denies is not charged"
        );
        // If an enforced policy denies, the shadow of the same call is not charged.
        let _ = harness.ask(Operation::Reset, &charges).await;
        let too_much = [charges[0], charges[1].cost(1_001)];
        check!(harness.ask(Operation::Acquire, &too_much).await.is_denied());
        check_eq!(harness.remaining(&shadow).await, 5, "{shadow}");
    });
}

/// Without defects B53 and B54, if the limit of a policy changes, the new limit applies from the
/// next decision, and the usage is kept.
pub(super) fn b53_b54_a_changed_limit_keeps_what_was_used<F: Fixture>(fixture: &F) {
    for (before, wider, narrower) in [
        ("fixed-window 5/1h", "fixed-window 8/1h", "fixed-window 3/1h"),
        ("fixed-window 5/1h phased", "fixed-window 8/1h phased", "fixed-window 3/1h phased"),
        ("fixed-window 5/1h anchored", "fixed-window 8/1h anchored", "fixed-window 3/1h anchored"),
        ("sliding-log 5/1h", "sliding-log 8/1h", "sliding-log 3/1h"),
        ("sliding-log 5/1h grain 1m", "sliding-log 8/1h grain 1m", "sliding-log 3/1h grain 1m"),
        ("sliding-counter 5/1h", "sliding-counter 8/1h", "sliding-counter 3/1h"),
        ("token-bucket 1/1h burst 5", "token-bucket 1/7h burst 8", "gcra 2/1h burst 3"),
        ("gcra 1/1h burst 5", "gcra 1000003/7h burst 8", "token-bucket 3/1h burst 3"),
        (
            "token-bucket 1/1h burst 5 by-interval",
            "token-bucket 2/1h burst 8 by-interval",
            "token-bucket 1/1h burst 3 by-interval",
        ),
    ] {
        case(fixture, async |harness| {
            let [before, wider, narrower] =
                [before, wider, narrower].map(|text| policy(&format!("p: {text}")));
            harness.take(&before, 4).await;
            check_eq!(harness.remaining(&wider).await, 4, "{wider}");
            check_eq!(harness.remaining(&narrower).await, 0, "{narrower}");
            check_eq!(harness.remaining(&before).await, 1, "{before}: a peek changes nothing");
            let _ = harness.refused(&narrower, 1).await;
            harness.take(&wider, 3).await;
            let _ = harness.refused(&wider, 2).await;
            let _ = harness.refused(&before, 1).await;
            harness.does(Operation::Refund, &before, 3).await;
            check_eq!(harness.remaining(&before).await, 1, "{before}");
        });
    }
}

/// Policies with the same name and different shapes: each has a different window or algorithm.
const SHAPES: [&str; 12] = [
    "p: fixed-window 5/1h",
    "p: fixed-window 5/2h",
    "p: fixed-window 5/1h anchored",
    "p: fixed-window 5/1h phased",
    "p: sliding-log 5/1h",
    "p: sliding-log 5/1h grain 1m",
    "p: sliding-log 5/2h",
    "p: sliding-counter 5/1h",
    "p: sliding-counter 5/2h",
    "p: token-bucket 5/1h",
    "p: token-bucket 5/1h by-interval",
    "p: token-bucket 5/2h by-interval",
];

/// Without defect B60, two policies with the same name and different windows or algorithms have
/// separate states. A caller that alternates between the two policies gets the sum of their limits.
/// A call under one policy, such as a block, does not change the state of the other policy.
pub(super) fn b60_another_window_or_algorithm_has_a_state_of_its_own<F: Fixture>(fixture: &F) {
    for from in SHAPES {
        for to in SHAPES.into_iter().filter(|&to| to != from) {
            case(fixture, async |harness| {
                let (from, to) = (policy(from), policy(to));
                let mut admitted = 0;
                for _ in 0..20 {
                    for policy in [&from, &to] {
                        admitted += u32::from(harness.acquire(policy, 1).await.is_allowed());
                    }
                }
                check_eq!(admitted, 10, "{from} and {to} in turns must admit 5 each");
                harness.does(Operation::Refund, &to, 2).await;
                check_eq!(harness.remaining(&from).await, 0, "{from} after a refund to {to}");
                harness.does(Operation::Block { span: us(60) }, &from, 1).await;
                let verdict = harness.refused(&from, 1).await.verdicts()[0];
                check_eq!(verdict.outcome(), Outcome::Blocked, "{from}");
                check_eq!(harness.remaining(&to).await, 2, "{to} while {from} is blocked");
                harness.does(Operation::Reset, &from, 0).await;
                let left = (harness.remaining(&from).await, harness.remaining(&to).await);
                check_eq!(left, (5, 2), "{from} was reset, {to} was not");
            });
        }
    }
}

/// Checks that a block of a policy continues if the limit of the policy changes.
pub(super) fn a_block_survives_a_changed_limit<F: Fixture>(fixture: &F) {
    for (before, after) in [
        ("p: fixed-window 5/1h", "p: fixed-window 9/1h"),
        ("p: sliding-log 5/1h", "p: sliding-log 500/1h"),
        ("p: sliding-counter 5/1h", "p: sliding-counter 9/1h block 1m"),
        ("p: token-bucket 5/1h", "p: gcra 7/1s burst 9"),
        ("p: token-bucket 5/1h by-interval", "p: token-bucket 9/1h by-interval"),
    ] {
        case(fixture, async |harness| {
            let (before, after) = (policy(before), policy(after));
            harness.take(&before, 1).await;
            harness.does(Operation::Block { span: us(60) }, &before, 1).await;
            let verdict = harness.refused(&after, 1).await.verdicts()[0];
            check_eq!(verdict.outcome(), Outcome::Blocked, "{before} to {after}");
            check_eq!(verdict.blocked_for(), us(60), "{before} to {after}");
        });
    }
}

/// Checks that a bucket recovers at the time that the policy of its last charge determined, even if
/// the policy then gets a lower rate. Decisions do not depend on whether the store has already
/// dropped the bucket's state.
pub(super) fn a_lowered_rate_counts_from_the_next_charge<F: Fixture>(fixture: &F) {
    for (fast, slow) in [
        ("p: token-bucket 1/1us burst 5", "p: token-bucket 1/1h burst 5"),
        ("p: gcra 1/1us burst 5", "p: gcra 2/3h burst 5"),
        ("p: token-bucket 5/1us burst 5 by-interval", "p: token-bucket 1/1us burst 5 by-interval"),
    ] {
        case(fixture, async |harness| {
            let (fast, slow) = (policy(fast), policy(slow));
            let taken = harness.acquire(&fast, 4).await.verdicts()[0];
            let full_after = u64::try_from(taken.reset_after().as_micros()).unwrap_or(u64::MAX);
            // The wait of a refusal ends when the bucket is full. If the wait were longer, a deny
            // cache would refuse the subject for too long.
            let refused = harness.refused(&slow, 5).await.verdicts()[0];
            let waits = [refused.retry_after(), Some(refused.reset_after())];
            check_eq!(waits, [Some(us(full_after)); 2], "{fast} to {slow}");
            harness.at(full_after - 1);
            check!(
                harness.remaining(&slow).await < 5,
                "{fast} to {slow}: the bucket must not be full yet"
            );
            harness.at(full_after);
            check_eq!(harness.remaining(&slow).await, 5, "{fast} to {slow}");
            harness.take(&slow, 5).await;
            let _ = harness.refused(&slow, 1).await;
        });
    }
}

/// Without defect B61, policies without a name share a state only if they are equal.
pub(super) fn b61_policies_without_a_name_share_states_only_if_equal<F: Fixture>(fixture: &F) {
    let texts = [
        "fixed-window 5/1h",
        "fixed-window 6/1h",
        "fixed-window 5/1h block 1m",
        "fixed-window 5/1h shadow",
        "fixed-window 5/1h shards 1 by-subject",
        "token-bucket 5/1h",
        "gcra 5/1h burst 5",
        "fixed: fixed-window 5/1h",
    ];
    case(fixture, async |harness| {
        let texts: Vec<_> =
            texts.into_iter().filter(|text| harness.supports(&policy(text))).collect();
        if texts.len() < 2 {
            harness.needs(&policy("fixed-window 5/1h"));
            harness.needs(&policy("fixed-window 6/1h"));
        }
        for &text in &texts {
            harness.take(&policy(text), 3).await;
        }
        for &text in &texts {
            let (policy, again) = (policy(text), policy(text));
            let left = policy.limit() - 3;
            check_eq!(
                harness.remaining(&policy).await,
                left,
                "{policy}: a policy without a name shares no state with a different policy"
            );
            harness.take(&policy, 1).await;
            check_eq!(
                harness.remaining(&again).await,
                left - 1,
                "{policy}: equal policies share a state"
            );
        }
    });
}

/// Checks that a call that is not valid gets an error that names the reason, and never a denial.
pub(super) fn a_wrong_call_is_an_error_and_not_a_denial<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let log = harness.hourly("p", 100, "");
        let shadow = log.clone().shadow();
        let charge = Charge::new(&log, "s");
        for charges in [vec![], vec![charge; 65], vec![charge, Charge::new(&shadow, "s")]] {
            for operation in [Operation::Acquire, Operation::Peek, Operation::Refund] {
                let error =
                    harness.try_ask(operation, &charges).await.expect_err("the call is not valid");
                check_eq!(error.kind(), ErrorKind::InvalidCall);
                check!(error.kind().is_invalid_request());
            }
        }
        let decision = harness.ask(Operation::Acquire, &[charge; 64]).await;
        check!(decision.is_allowed(), "a call may have 64 charges");
        check_eq!(harness.remaining(&log).await, 36);
    });
}

/// Checks that under a `phased` policy, the windows of different subjects end at different times.
pub(super) fn phased_windows_end_at_times_of_their_own<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        harness.set(START);
        let phased = policy("p: fixed-window 5/1h phased");
        let mut ends = vec![];
        for subject in 0..20 {
            let subject = format!("subject {subject}");
            let decision = harness.ask(Operation::Acquire, &[Charge::new(&phased, &subject)]).await;
            let end = decision.verdicts()[0].reset_after();
            check!(end > Duration::ZERO && end <= Duration::from_secs(3_600));
            ends.push(end);
        }
        ends.sort();
        ends.dedup();
        check!(
            ends.len() > 15,
            "the windows of 20 subjects must end at more than 15 different times: {ends:?}"
        );
    });
}
