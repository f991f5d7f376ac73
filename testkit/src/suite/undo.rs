//! Properties of undo: an undo refunds the charge of one call, and no charge of another call.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::algorithm::sliding_log::MAX_UNDO;
use tidegate_core::{Charge, Error, Operation, Outcome, Policy, Timestamp};

use super::fixture::Fixture;
use super::harness::{EACH, Harness, START, case, cases, each, each_case, policy};
use super::report::{check, check_eq};
use crate::show;

/// Returns the undo of a charge that was made `micros` microseconds after [`START`].
fn undo(micros: u64) -> Operation {
    Operation::Undo { at: Timestamp::from_micros(START + micros) }
}

/// Checks that if several charges are undone immediately, the contents of the store are the same as
/// before the charges, byte for byte.
pub(super) fn an_undo_at_once_leaves_what_was_there_before<F: Fixture>(fixture: &F) {
    for policy in each() {
        for before in [0, 2] {
            case(fixture, async |harness| {
                let other = harness.hourly("other", 9, "");
                let charges = [
                    Charge::new(&policy, "s").cost(2),
                    Charge::new(&other, "s").cost(3),
                    Charge::new(&policy, "s"),
                ];
                if before > 0 {
                    harness.take(&policy, before).await;
                    harness.take(&other, before).await;
                }
                let snapshot = harness.snapshot(&charges).await;
                for _ in 0..3 {
                    check!(
                        harness.ask(Operation::Acquire, &charges).await.is_allowed(),
                        "{policy}"
                    );
                    let undone = harness.ask(undo(0), &charges).await;
                    check!(
                        undone.is_allowed(),
                        "{policy}: an undo is answered like a peek at a cost of 0"
                    );
                    let remaining: Vec<_> =
                        undone.verdicts().iter().map(|verdict| verdict.remaining()).collect();
                    check_eq!(remaining, [5 - before, 9 - before, 5 - before], "{policy}");
                    check_eq!(harness.snapshot(&charges).await, snapshot, "{policy}");
                }
            });
        }
    }
}

/// A request: the time before the request, its cost, an optional extra charge and an optional
/// block. Before the request, the test makes the extra charge (its cost, and whether it is a
/// reservation), then the block, and then undoes the extra charge. A block of zero lifts a block.
type Request = (u64, u64, Option<(u64, bool)>, Option<u64>);

fn requests() -> impl Strategy<Value = (Policy, Vec<Request>)> {
    let passes = prop_oneof![3 => Just(0), 4 => 0..8_u64, 1 => 0..40_u64];
    let undone = prop::option::of((1..6_u64, any::<bool>()));
    let blocked = prop::option::weighted(0.1, prop_oneof![Just(0), 1..9_u64]);
    let request = (passes, 0..4_u64, undone, blocked);
    (prop::sample::select(&EACH[..]), prop::collection::vec(request, 1..40))
        .prop_map(|(text, requests)| (policy(text), requests))
}

/// Checks that two stores return the same answers to the same calls, although the first store also
/// receives extra charges, which are undone immediately.
pub(super) fn what_is_undone_at_once_is_as_if_never_taken<F: Fixture>(fixture: &F) {
    cases(fixture, requests(), async |harness, (policy, requests)| {
        let without = Harness::open(fixture).await;
        let mut now = 0;
        for (passes, cost, undone, blocked) in requests {
            now += passes;
            harness.at(now);
            without.at(now);
            let extra =
                undone.map(|(cost, reserved)| (Charge::new(policy, "s").cost(cost), reserved));
            let mut taken = None;
            if let Some((charge, reserved)) = extra {
                let max_wait = Duration::from_micros(20);
                let take = match reserved && policy.rule().can_reserve() {
                    true => Operation::Reserve { max_wait },
                    false => Operation::Acquire,
                };
                taken = harness.ask(take, &[charge]).await.is_allowed().then_some(charge);
            }
            if let Some(micros) = blocked {
                let block = Operation::Block { span: Duration::from_micros(*micros) };
                for harness in [harness, &without] {
                    harness.does(block, policy, 0).await;
                }
            }
            if let Some(charge) = taken {
                let _ = harness.ask(undo(now), &[charge]).await;
            }
            let (one, two) =
                (harness.acquire(policy, *cost).await, without.acquire(policy, *cost).await);
            if one != two {
                return Err(format!(
                    "{policy}, {now} us after the start: an acquire is answered with {} after a charge and \
                     its undo, and with {} without them",
                    show::answer(&Ok::<_, Error>(one)),
                    show::answer(&Ok::<_, Error>(two)),
                ));
            }
        }
        Ok(())
    });
}

/// Checks that a later undo refunds only the part of the charge that still counts, and no charge of
/// another call.
pub(super) fn an_undo_later_takes_nothing_from_others<F: Fixture>(fixture: &F) {
    // The test makes a charge of 3 at the start. Later, another caller makes a charge, and the test
    // immediately undoes the first charge. Each case has the policy, the time and the cost of the
    // other charge, the remaining amount after the undo, a later time, and the remaining amount at
    // the later time. An aligned window ends 7 µs after the start, and an anchored window 10 µs
    // after the start.
    for (text, when, cost, remains, later, remains_later) in [
        ("p: fixed-window 5/10us", 6, 2, 3, 7, 5),
        ("p: fixed-window 5/10us", 7, 4, 1, 16, 1),
        ("p: fixed-window 5/10us anchored", 9, 2, 3, 10, 5),
        ("p: fixed-window 5/10us anchored", 10, 4, 1, 19, 1),
        ("p: sliding-log 5/10us", 9, 2, 3, 18, 3),
        ("p: sliding-log 5/10us", 10, 4, 1, 19, 1),
        ("p: sliding-log 5/10us grain 2us", 9, 2, 3, 19, 3),
        ("p: sliding-log 5/10us grain 2us", 11, 4, 1, 20, 1),
        // A sliding counter weights the charges of the previous window: fully at the start of the
        // current window, and not at all at its end.
        ("p: sliding-counter 5/10us", 6, 2, 3, 7, 3),
        ("p: sliding-counter 5/10us", 7, 2, 3, 16, 3),
        ("p: sliding-counter 5/10us", 17, 4, 1, 26, 1),
        // The bucket refills one token in 2 µs. An undo does not refund the tokens that the bucket
        // has possibly refilled since the charge.
        ("p: token-bucket 5/10us burst 5", 4, 3, 2, 5, 2),
        ("p: token-bucket 5/10us burst 5", 5, 3, 2, 7, 3),
        ("p: gcra 5/10us burst 5", 6, 4, 1, 7, 1),
        ("p: token-bucket 5/10us burst 5 by-interval", 9, 2, 3, 10, 5),
        ("p: token-bucket 5/10us burst 5 by-interval", 10, 4, 1, 19, 1),
        ("p: token-bucket 2/10us burst 5 by-interval", 10, 3, 2, 19, 2),
        ("p: token-bucket 1/10us burst 5 by-interval", 20, 3, 2, 29, 2),
    ] {
        case(fixture, async |harness| {
            let policy = policy(text);
            harness.take(&policy, 3).await;
            harness.at(when);
            harness.take(&policy, cost).await;
            let undone = harness.does(undo(0), &policy, 3).await;
            check_eq!(undone.remaining(), remains, "{text}: undone {when} us later");
            harness.at(later);
            check_eq!(harness.remaining(&policy).await, remains_later, "{text}: {later} us later");
        });
    }
}

/// Without defect B59, any number of charges of one instant can be undone later. Each undo refunds
/// its whole charge, but at most the amount that is still charged.
pub(super) fn b59_many_takes_are_undone_in_full<F: Fixture>(fixture: &F) {
    for text in [
        "p: token-bucket 10/1s burst 100",
        "p: gcra 10/1s burst 100",
        "p: token-bucket 10/1s burst 100 by-interval",
        "p: sliding-log 100/1m",
        "p: sliding-counter 100/1m",
        "p: fixed-window 100/1m",
    ] {
        case(fixture, async |harness| {
            harness.set(1_790_000_040_000_000);
            let policy = policy(text);
            let at = Timestamp::from_micros(1_790_000_040_000_000);
            for _ in 0..20 {
                harness.take(&policy, 1).await;
            }
            // A bucket has refilled one token since the charges.
            harness.set(1_790_000_040_100_000);
            for _ in 0..20 {
                harness.does(Operation::Undo { at }, &policy, 1).await;
            }
            check_eq!(harness.remaining(&policy).await, 100, "{policy}");
        });
    }
}

/// Checks that an undo refunds nothing if the charge was not made. The cases are a subject without
/// a state, a time without a charge, a charge above the limit, and a cost of 0.
pub(super) fn what_was_not_taken_is_not_undone<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let charge = Charge::new(&policy, "s");
        let fresh = harness.snapshot(&[charge]).await;
        harness.does(undo(0), &policy, 2).await;
        check_eq!(harness.snapshot(&[charge]).await, fresh, "{policy}: a subject without a state");
        harness.take(&policy, 3).await;
        let taken = harness.snapshot(&[charge]).await;
        let twins = [charge.cost(3), charge.cost(3)];
        let _ = harness.ask(undo(0), &twins).await;
        harness.does(undo(0), &policy, 6).await;
        harness.does(undo(0), &policy, u64::MAX).await;
        harness.does(undo(0), &policy, 0).await;
        for micros in [100, 1 << 51] {
            harness.does(undo(micros), &policy, 2).await;
        }
        let long_ago = Operation::Undo { at: Timestamp::EPOCH };
        harness.does(long_ago, &policy, 2).await;
        check_eq!(harness.snapshot(&[charge]).await, taken, "{policy}");
    });
}

pub(super) fn an_undo_leaves_blocks_alone<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let strict = policy.block_for(Duration::from_micros(50)).expect("within the bounds");
        harness.take(&strict, 4).await;
        let _ = harness.refused(&strict, 2).await;
        let undone = harness.does(undo(0), &strict, 4).await;
        check_eq!(undone.outcome(), Outcome::Blocked, "{strict}");
        check_eq!(undone.retry_after(), Some(Duration::from_micros(50)), "{strict}");
        let lifted = harness.does(Operation::Block { span: Duration::ZERO }, &strict, 0).await;
        check_eq!(lifted.remaining(), 5, "{strict}");
    });
}

/// Checks that an undo of a sliding log searches the newest [`MAX_UNDO`] records of the log. The
/// undo does not change an older record.
pub(super) fn a_log_undoes_what_is_among_its_newest_records<F: Fixture>(fixture: &F) {
    let max_undo = u64::try_from(MAX_UNDO).unwrap_or(u64::MAX);
    for text in ["p: sliding-log 1000/1ms", "p: sliding-log 1000/1ms grain 1us"] {
        for (records, remaining) in
            [(max_undo, 1_000 - (max_undo - 1)), (max_undo + 1, 1_000 - max_undo - 2)]
        {
            case(fixture, async |harness| {
                let log = policy(text);
                harness.take(&log, 2).await;
                for at in 1..records {
                    harness.at(at);
                    harness.take(&log, 1).await;
                }
                let undone = harness.does(undo(0), &log, 2).await;
                check_eq!(undone.remaining(), remaining, "{text}: {records} records");
            });
        }
    }
}

/// A step of a sequence: an acquire (the time before the acquire, and its cost), or an undo of an
/// earlier acquire.
#[derive(Debug, Clone)]
enum Step {
    Acquire(u64, u64),
    Undo(u64, prop::sample::Index),
}

fn steps() -> impl Strategy<Value = (Policy, Vec<Step>)> {
    let passes = || prop_oneof![3 => Just(0), 4 => 0..8_u64, 1 => 0..40_u64];
    let step = prop_oneof![
        3 => (passes(), 1..6_u64).prop_map(|(passes, cost)| Step::Acquire(passes, cost)),
        2 => (passes(), any::<prop::sample::Index>())
            .prop_map(|(passes, which)| Step::Undo(passes, which)),
    ];
    (prop::sample::select(&EACH[..]), prop::collection::vec(step, 1..80))
        .prop_map(|(text, steps)| (policy(text), steps))
}

/// Checks that an undo never makes room for more than the policy allows. In any sequence of
/// acquires and undos, the sum of the charges that were not undone stays within the limit.
pub(super) fn never_more_is_admitted_whatever_is_undone<F: Fixture>(fixture: &F) {
    cases(fixture, steps(), async |harness, (policy, steps)| {
        let phase = Charge::new(policy, "s").phase();
        // The time and the cost of each charge that was not undone.
        let (mut now, mut taken) = (START, vec![]);
        for step in steps {
            match step {
                Step::Acquire(passes, cost) => {
                    now += passes;
                    harness.set(now);
                    if harness.acquire(policy, *cost).await.is_allowed() {
                        taken.push((now, *cost));
                    }
                }
                Step::Undo(passes, which) if !taken.is_empty() => {
                    now += passes;
                    harness.set(now);
                    let (at, cost) = taken.remove(which.index(taken.len()));
                    let at = Timestamp::from_micros(at);
                    harness.does(Operation::Undo { at }, policy, cost).await;
                }
                Step::Undo(..) => {}
            }
            if let Some(&(to, _)) = taken.last().filter(|(at, _)| *at == now)
                && let Some(error) = excess(policy, phase, &taken, to)
            {
                return Err(format!(
                    "{policy}: the charges that were not undone exceed the policy: {error}"
                ));
            }
        }
        Ok(())
    });
}

/// Returns a message if the charges that count at the time `to` exceed the limit of 5 in 10 µs. The
/// algorithm of the policy determines which charges count.
fn excess(policy: &Policy, phase: u64, taken: &[(u64, u64)], to: u64) -> Option<String> {
    let sum = |counts: &dyn Fn(u64) -> bool| -> u64 {
        taken.iter().filter(|(at, _)| counts(*at)).map(|(_, cost)| cost).sum()
    };
    let text = policy.to_string();
    let window = |window: u64, shift: u64| sum(&|at| (at + shift) / 10 == window);
    match policy.algorithm().keyword() {
        "fixed-window" if text.contains("anchored") => {
            // The start of an anchored window is not known. An interval of 10 µs overlaps at most
            // two windows, so it admits at most 10.
            let stretch = sum(&|at| at + 10 > to);
            (stretch > 10).then(|| format!("{stretch} in 10 µs"))
        }
        "fixed-window" => {
            let shift = if text.contains("phased") { phase % 10 } else { 0 };
            let current = window((to + shift) / 10, shift);
            (current > 5).then(|| format!("{current} in the window of {to}"))
        }
        "sliding-log" => {
            let stretch = sum(&|at| at + 10 > to);
            (stretch > 5).then(|| format!("{stretch} in 10 µs"))
        }
        "sliding-counter" => {
            let weighted = window(to / 10 - 1, 0) * (10 - to % 10) + window(to / 10, 0) * 10;
            (weighted > 50).then(|| format!("{weighted} tenths at {to}"))
        }
        _ => taken.iter().find_map(|&(from, _)| {
            let stretch = sum(&|at| at >= from);
            let refilled = match text.contains("by-interval") {
                true => 5 * ((to - from) / 10 + 1),
                false => (to - from) / 2,
            };
            (stretch > 5 + refilled).then(|| format!("{stretch} from {from} to {to}"))
        }),
    }
}
