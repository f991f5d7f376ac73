//! Properties of holds. A hold is an estimate that is charged immediately under an id, and settled
//! later under the same id.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    AlreadySettled, Call, CallId, Charge, Decision, Error, ErrorKind, MAX_EXACT, Operation, Policy,
    Store, StoreExt,
};

use super::fixture::Fixture;
use super::harness::{Harness, case, cases, concurrently, each, each_case, threads};
use super::report::{check, check_eq, fail, leave_out, unless_unsupported};
use crate::compare::against_oracle::run_holds_against_oracle;
use crate::generate::{
    any_policy, few_slots, hold_scenario, several_policies, slots_policy, slots_scenario,
};
use crate::stores::faults::Fault;
use crate::stores::faults::Faults;

const TTL: Duration = Duration::from_micros(50);

async fn must<F: Fixture>(
    harness: &Harness<'_, F>,
    operation: Operation,
    charges: &[Charge<'_>],
) -> Decision {
    harness.must(CallId::new("id", TTL), operation, charges).await
}

async fn must_fail<F: Fixture>(
    harness: &Harness<'_, F>,
    operation: Operation,
    charges: &[Charge<'_>],
) -> Error {
    let answer = harness.once(CallId::new("id", TTL), operation, charges).await;
    match answer {
        Ok(_) => fail(&format!("{operation:?} must fail")),
        Err(error) => {
            check!(error.is_definitely_not_charged(), "{operation:?} fails with `{error}`");
            error
        }
    }
}

async fn needs_ids<F: Fixture>(harness: &Harness<'_, F>, policy: &Policy) {
    let charge = [Charge::new(policy, "none")];
    let _ = harness.once(CallId::new("none", TTL), Operation::Extend, &charge).await;
}

/// Checks that the store decides a random trace of holds like the oracle.
pub(super) fn holds_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    let one = any_policy("p").prop_map(|policy| vec![policy]);
    cases(fixture, hold_scenario(one, 30), async |harness, scenario| {
        scenario.policies.iter().for_each(|policy| harness.needs(policy));
        needs_ids(harness, &scenario.policies[0]).await;
        run_holds_against_oracle(&harness.store, &harness.clock, scenario).await
    });
}

/// Checks that the store decides a random trace of holds with several policies per call like the
/// oracle.
pub(super) fn holds_of_several_charges_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    cases(fixture, hold_scenario(several_policies(), 25), async |harness, scenario| {
        let mut scenario = scenario.clone();
        scenario.policies.retain(|policy| harness.supports(policy));
        if scenario.policies.is_empty() {
            leave_out("the store supports none of the policies of the scenario".to_owned());
        }
        needs_ids(harness, &scenario.policies[0]).await;
        run_holds_against_oracle(&harness.store, &harness.clock, &scenario).await
    });
}

/// Checks that the store decides a random trace of holds like the oracle, if the states store their
/// holds. The oracle refunds a hold at the time of its lapse, or counts it as a failure.
pub(super) fn lapses_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    let any = |name| {
        let policy = (any_policy(name), 0..5).prop_map(|(policy, kind)| match kind {
            0 => policy,
            1 | 2 => policy.count_failures(),
            _ => policy.refund_lapsed(),
        });
        prop_oneof![3 => policy, 2 => slots_policy(name)]
    };
    let several = (any("p"), any("q"), 1..3_usize).prop_map(|(p, q, count)| {
        let mut policies = vec![p, q];
        policies.truncate(count);
        policies
    });
    cases(fixture, hold_scenario(several, 30), async |harness, scenario| {
        scenario.policies.iter().for_each(|policy| harness.needs(policy));
        needs_ids(harness, &scenario.policies[0]).await;
        run_holds_against_oracle(&harness.store, &harness.clock, scenario).await
    });
}

/// Checks that the store decides a random trace of several holders of slots like the oracle. The
/// holders take, renew, lose and revive slots.
pub(super) fn slots_are_decided_as_by_the_oracle<F: Fixture>(fixture: &F) {
    let rate = any_policy("q").prop_map(Policy::refund_lapsed);
    let others =
        prop_oneof![2 => Just(None), 1 => few_slots("q").prop_map(Some), 1 => rate.prop_map(Some)];
    let policies = (few_slots("p"), others)
        .prop_map(|(slots, other)| [Some(slots), other].into_iter().flatten().collect());
    cases(fixture, slots_scenario(policies, 40), async |harness, scenario| {
        scenario.policies.iter().for_each(|policy| harness.needs(policy));
        needs_ids(harness, &scenario.policies[0]).await;
        run_holds_against_oracle(&harness.store, &harness.clock, scenario).await
    });
}

/// Checks that the unspent part of a lapsed hold is refunded under a policy with `refund-lapsed`.
/// The store is allowed to execute the refund later, but the result must be the same as of a refund
/// at the time of the lapse.
pub(super) fn a_lapsed_hold_is_given_back_by_its_policy<F: Fixture>(fixture: &F) {
    for text in [
        "p: fixed-window 9/1h refund-lapsed",
        "p: fixed-window 9/1h anchored refund-lapsed",
        "p: sliding-log 9/1h refund-lapsed",
        "p: sliding-counter 9/1h refund-lapsed",
        "p: token-bucket 9/1h refund-lapsed",
        "p: token-bucket 9/1h by-interval refund-lapsed",
    ] {
        // The hold has a cost of 5. A used cost of 1 is reported, and then the hold lapses. Each
        // case has the actual cost of a later settlement (`None` without a settlement), and the
        // remaining amount. A settlement at 0 also refunds the reported 1, so the test adds 1 to
        // the remaining amount.
        for (actual, remaining) in
            [(None, 8), (Some(0), 8), (Some(1), 8), (Some(3), 6), (Some(9), 0)]
        {
            case(fixture, async |harness| {
                let policy = super::harness::policy(text);
                let held = [Charge::new(&policy, "s").cost(5)];
                check!(must(harness, Operation::Hold, &held).await.is_allowed(), "{text}");
                let _ = must(harness, Operation::SettleSoFar, &[held[0].cost(1)]).await;
                harness.at(49);
                check_eq!(harness.remaining(&policy).await, 4, "{text}");
                harness.at(50);
                check_eq!(harness.remaining(&policy).await, 8, "{text}");
                harness.take(&policy, 8).await;
                let _ = harness.does(Operation::Refund, &policy, 8).await;
                let Some(actual) = actual else { return };
                harness.at(99);
                let settled = must(harness, Operation::Settle, &[held[0].cost(actual)]).await;
                let left = if actual == 0 { remaining + 1 } else { remaining };
                check_eq!(settled.verdicts()[0].remaining(), left, "{text}, {actual}");
                let again = must(harness, Operation::Settle, &[held[0].cost(actual)]).await;
                check_eq!(again, settled, "{text}, {actual}");
            });
        }
    }
}

/// Checks that the times of a refusal include the refunds of holds that will lapse. A caller that
/// waits for `retry_after` succeeds, and a caller that waits one microsecond less fails. After
/// `reset_after`, the state has recovered.
pub(super) fn a_wait_counts_on_what_will_lapse<F: Fixture>(fixture: &F) {
    let policies: Vec<Policy> = each().map(Policy::refund_lapsed).collect();
    let holds = prop::collection::vec((0..4_u64, 1..4_u64, 1..30_u64), 1..5);
    let inputs = (prop::sample::select(policies), holds, 1..6_u64);
    cases(fixture, inputs, async |harness, (policy, holds, cost)| {
        harness.needs(policy);
        let mut now = 0;
        for (number, (passes, cost, ttl)) in holds.iter().enumerate() {
            now += passes;
            harness.at(now);
            let (id, ttl) = (number.to_le_bytes(), Duration::from_micros(*ttl));
            let charge = [Charge::new(policy, "s").cost(*cost)];
            let answer = harness.once(CallId::new(&id, ttl), Operation::Hold, &charge).await;
            check!(answer.is_ok(), "{answer:?}");
        }
        let charge = [Charge::new(policy, "s").cost(*cost)];
        let refused = harness.ask(Operation::Peek, &charge).await;
        if refused.is_denied() {
            let wait = refused.retry_after().unwrap_or_default();
            harness.advance(wait - Duration::from_micros(1));
            check!(harness.ask(Operation::Peek, &charge).await.is_denied(), "{policy}: {wait:?}");
            harness.advance(Duration::from_micros(1));
            check!(harness.ask(Operation::Peek, &charge).await.is_allowed(), "{policy}: {wait:?}");
        }
        let reset = harness.does(Operation::Peek, policy, 0).await.reset_after();
        if !reset.is_zero() {
            harness.advance(reset);
            let after = harness.does(Operation::Peek, policy, 0).await;
            check_eq!((after.reset_after(), after.remaining()), (Duration::ZERO, 5), "{policy}");
        }
        Ok(())
    });
}

/// Checks that a peek returns the unspent part of the holds under a policy with `refund-lapsed`,
/// even after lost answers. No other call returns the unspent part.
pub(super) fn a_peek_says_what_is_held_and_not_spent<F: Fixture>(fixture: &F) {
    let texts = [
        "p: fixed-window 60/1h",
        "p: fixed-window 60/20us anchored",
        "p: sliding-log 60/1h",
        "p: sliding-counter 60/20us",
        "p: token-bucket 60/60us",
        "p: token-bucket 60/1h by-interval",
    ];
    let policies = texts.map(|text| super::harness::policy(text).refund_lapsed()).to_vec();
    // Each job describes a hold: its cost, the amount that is reported as used, whether it is
    // extended, and whether it is settled.
    let jobs = prop::collection::vec((1..9_u64, 0..12_u64, any::<bool>(), any::<bool>()), 1..5);
    let inputs = (prop::sample::select(policies), jobs, any::<bool>(), lost(24));
    cases(fixture, inputs, async |harness, (policy, jobs, is_reset, plan)| {
        harness.needs(policy);
        let plain = harness.hourly("q", 60, "");
        let charge_to = |policy, cost| Charge::new(policy, "s").tenant("t").cost(cost);
        let store = Arc::clone(&harness.store).layer(Faults::new(plan.clone()));
        let unspent = async |expected: u64| {
            let charges = [charge_to(policy, 0), charge_to(&plain, 0)];
            let peek = harness.ask(Operation::Peek, &charges).await;
            check_eq!(peek.unspent(), [Some(expected), None], "{policy}");
            let peek = harness.ask(Operation::Peek, &[charges[1], charges[0], charges[0]]).await;
            check_eq!(peek.unspent(), [None, Some(expected), Some(expected)], "{policy}");
            let peek = harness.ask(Operation::Peek, &charges[1..]).await;
            check_eq!(peek.unspent(), [], "{policy}");
            let acquire = harness.ask(Operation::Acquire, &charges).await;
            check_eq!(acquire.unspent(), [], "{policy}");
        };
        // For each open hold, the time of its lapse and its unspent part.
        let mut open: Vec<(u64, u64)> = vec![];
        let expected = |open: &[(u64, u64)]| open.iter().map(|(_, unspent)| unspent).sum();
        for ((cost, spent, is_extended, is_settled), number) in jobs.iter().zip(0_u64..) {
            let (id, now) = (number.to_le_bytes(), 7 * number);
            let does = async |operation, cost| {
                let charges = [charge_to(policy, cost), charge_to(&plain, cost)];
                let call = Call::new(operation, &charges).with_id(CallId::new(&id, TTL));
                until_answered(&store, call).await
            };
            harness.at(now);
            check!(does(Operation::Hold, *cost).await?.is_allowed(), "{policy}");
            open.push((now + 50, *cost));
            unspent(expected(&open)).await;
            let _ = does(Operation::SettleSoFar, *spent).await?;
            open.pop();
            open.push((now + 50, cost.saturating_sub(*spent)));
            unspent(expected(&open)).await;
            if *is_extended {
                harness.at(now + 3);
                let _ = does(Operation::Extend, *cost).await?;
                let (lapses_at, _) = open.last_mut().expect("a hold was made");
                *lapses_at += 3;
                unspent(expected(&open)).await;
            }
            if *is_settled {
                let _ = does(Operation::Settle, *spent).await?;
                open.pop();
                unspent(expected(&open)).await;
            }
        }
        if *is_reset {
            let _ = harness.ask(Operation::Reset, &[charge_to(policy, 0)]).await;
            open.clear();
            unspent(0).await;
        }
        open.sort_unstable();
        while let Some((lapses_at, _)) = open.first().copied() {
            harness.at(lapses_at - 1);
            unspent(expected(&open)).await;
            harness.at(lapses_at);
            open.retain(|(at, _)| *at > lapses_at);
            unspent(expected(&open)).await;
        }
        Ok(())
    });
}

/// A step of a trace in which a holder and other callers use one subject.
#[derive(Debug, Clone, Copy)]
enum Shared {
    /// The holder makes a hold with this number and this cost.
    Hold(u8, u64),
    /// The holder settles the hold with this number at this actual cost.
    Settle(u8, u64),
    /// The holder refunds the cost of the hold with this number. The hold stays open and can be
    /// settled later.
    RefundHold(u8),
    /// Another caller acquires this cost.
    Acquire(u64),
    /// Another caller refunds this cost.
    Refund(u64),
    Reset,
}

/// Without defect B100, the end of a hold never refunds the usage of other callers, even after a
/// reset or a refund. A hold ends by a settlement, a cancellation or a lapse. If no caller refunds,
/// the usage is exactly the sum of the amounts that all callers have used since the last reset.
pub(super) fn b100_a_settlement_never_refunds_other_callers<F: Fixture>(fixture: &F) {
    let policies: Vec<Policy> = ["", " refund-lapsed"]
        .into_iter()
        .flat_map(|suffix| {
            [
                "p: fixed-window 60/1h",
                "p: fixed-window 60/1h anchored",
                "p: sliding-log 60/1h",
                "p: sliding-log 60/1h grain 1m",
                "p: sliding-counter 60/1h",
                "p: token-bucket 60/1h",
                "p: token-bucket 60/1h by-interval",
            ]
            .map(|text| super::harness::policy(&format!("{text}{suffix}")))
        })
        .collect();
    let (id, cost) = (0..3_u8, 1..12_u64);
    let step = prop_oneof![
        4 => (id.clone(), cost.clone()).prop_map(|(id, cost)| Shared::Hold(id, cost)),
        3 => (id.clone(), 0..14_u64).prop_map(|(id, cost)| Shared::Settle(id, cost)),
        3 => id.prop_map(Shared::RefundHold),
        4 => cost.clone().prop_map(Shared::Acquire),
        1 => cost.prop_map(Shared::Refund),
        1 => Just(Shared::Reset),
    ];
    // Random steps rarely contain the following two sequences. In the second sequence, a bucket has
    // refilled a part of the held token before the refund.
    let scenarios = [
        [Shared::Hold(0, 6), Shared::Acquire(5), Shared::RefundHold(0), Shared::Settle(0, 0)],
        [Shared::Hold(0, 1), Shared::RefundHold(0), Shared::Acquire(1), Shared::Settle(0, 0)],
    ];
    let scenario = prop::sample::select(scenarios.to_vec());
    let steps = prop_oneof![
        3 => (prop::collection::vec((step, 0..3_u64), 1..14), any::<bool>()),
        1 => scenario.prop_map(|steps| (steps.map(|step| (step, 1)).to_vec(), true)),
    ];
    let inputs = (prop::sample::select(policies), steps);
    cases(fixture, inputs, async |harness, (policy, (steps, with_refunds))| {
        harness.needs(policy);
        let charges_of = |cost| [Charge::new(policy, "s").cost(cost)];
        let life = Duration::from_micros(100);
        let does = async |operation, id: u8, cost| {
            let id = [id];
            harness.once(CallId::new(&id, life), operation, &charges_of(cost)).await
        };
        // For each hold: its cost, whether its state was reset since, and whether it was refunded.
        // The other variables are the number of holds per id, the usage of other callers, the usage
        // of settled holds, and the time.
        let mut holds: Vec<Option<(u64, bool, bool)>> = vec![None; 3];
        let (mut made, mut others, mut settled, mut now) = ([0_u8; 3], 0, 0, 0);
        for (step, passes) in steps {
            now += passes;
            harness.at(now);
            let number = |id: u8, made: &[u8; 3]| id + 3 * made[usize::from(id)];
            match *step {
                Shared::Hold(id, cost) if holds[usize::from(id)].is_none() => {
                    made[usize::from(id)] += 1;
                    let decision = does(Operation::Hold, number(id, &made), cost).await;
                    if decision.is_ok_and(|decision| decision.is_allowed()) {
                        holds[usize::from(id)] = Some((cost, false, false));
                    }
                }
                Shared::Settle(id, actual) => {
                    if holds[usize::from(id)].take().is_none() {
                        continue;
                    }
                    let decision = does(Operation::Settle, number(id, &made), actual).await;
                    check!(decision.is_ok(), "{policy}: {decision:?}");
                    settled += actual;
                }
                Shared::RefundHold(id) if *with_refunds => {
                    // The test refunds each hold at most once, because a second refund would refund
                    // the usage of other callers.
                    let Some((cost, false, is_refunded @ false)) = &mut holds[usize::from(id)]
                    else {
                        continue;
                    };
                    let (cost, ()) = (*cost, *is_refunded = true);
                    let _ = harness.ask(Operation::Refund, &charges_of(cost)).await;
                }
                Shared::Acquire(cost) => {
                    if harness.ask(Operation::Acquire, &charges_of(cost)).await.is_allowed() {
                        others += cost;
                    }
                }
                Shared::Refund(cost) if *with_refunds => {
                    let cost = cost.min(others);
                    let _ = harness.ask(Operation::Refund, &charges_of(cost)).await;
                    others -= cost;
                }
                Shared::Reset => {
                    let _ = harness.ask(Operation::Reset, &charges_of(0)).await;
                    (others, settled) = (0, 0);
                    holds.iter_mut().flatten().for_each(|(_, was_reset, _)| *was_reset = true);
                }
                _ => continue,
            }
            let used =
                60 - harness.ask(Operation::Peek, &charges_of(0)).await.verdicts()[0].remaining();
            check!(used >= others.min(60), "{policy}: {used} used, {others} by other callers");
            if !with_refunds {
                let open = holds.iter().flatten().filter(|(_, was_reset, _)| !was_reset);
                let held: u64 = open.map(|(cost, ..)| cost).sum();
                check_eq!(used, (others + settled + held).min(60), "{policy}");
            }
        }
        // The holds that were not settled have lapsed by this time. A lapse must not refund the
        // usage of other callers.
        harness.at(now + 100);
        let used =
            60 - harness.ask(Operation::Peek, &charges_of(0)).await.verdicts()[0].remaining();
        check!(used >= others.min(60), "{policy}: {used} used, {others} by other callers");
        Ok(())
    });
}

/// Checks that a settlement refunds the unspent part of a hold or charges the overage. A repeated
/// settlement does neither again.
pub(super) fn a_hold_is_settled_once<F: Fixture>(fixture: &F) {
    for policy in each() {
        // The hold has a cost of 4, and the limit is 5. Each case has the actual cost, the refunded
        // or charged amount, and the remaining amount.
        for (cost, amount, remaining) in [(0, 4, 5), (1, 3, 4), (4, 0, 1), (5, 1, 0), (9, 5, 0)] {
            case(fixture, async |harness| {
                let held = [Charge::new(&policy, "s").cost(4)];
                check!(must(harness, Operation::Hold, &held).await.is_allowed());
                let actual = [held[0].cost(cost)];
                let first = must(harness, Operation::Settle, &actual).await;
                check_eq!(first.amounts(), [amount], "{policy}, {cost}");
                check_eq!(first.verdicts()[0].remaining(), remaining, "{policy}, {cost}");
                for micros in [0, 1, 99] {
                    harness.at(micros);
                    let before = harness.snapshot(&held).await;
                    let again = must(harness, Operation::Settle, &actual).await;
                    check_eq!(again, first, "{policy}, {cost}, {micros} us later");
                    check_eq!(harness.snapshot(&held).await, before, "{policy}, {cost}");
                }
            });
        }
    }
}

/// Checks that a settled hold cannot be settled again at other costs. The error contains the first
/// settlement.
pub(super) fn a_settled_hold_has_one_settlement<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        for (name, cost) in [("settled", 3), ("cancelled", 0)] {
            let policy = harness.hourly(name, 9, "");
            let held = [Charge::new(&policy, name).cost(5)];
            check!(must(harness, Operation::Hold, &held).await.is_allowed());
            let first = must(harness, Operation::Settle, &[held[0].cost(cost)]).await;
            let before = harness.snapshot(&held).await;
            for (operation, cost_now) in [
                (Operation::Settle, 4),
                (Operation::Settle, 5),
                (Operation::SettleSoFar, cost),
                (Operation::SettleSoFar, 8),
                (Operation::Extend, cost),
            ] {
                let error = must_fail(harness, operation, &[held[0].cost(cost_now)]).await;
                check_eq!(error.kind(), ErrorKind::AlreadySettled, "{operation:?}, {cost_now}");
                let source = std::error::Error::source(&error);
                let settled = source.and_then(|source| source.downcast_ref::<AlreadySettled>());
                check_eq!(
                    settled.map(|first| (first.costs().to_vec(), first.decision().clone())),
                    Some((vec![cost], first.clone())),
                    "{operation:?}, {cost_now}"
                );
            }
            check_eq!(harness.snapshot(&held).await, before);
            // A repeated hold under the same id returns the first answer.
            check!(must(harness, Operation::Hold, &held).await.is_allowed());
            check_eq!(harness.snapshot(&held).await, before);
        }
    });
}

/// Checks that a hold stays charged while it is not settled. It can be settled until twice the time
/// of the hold is over.
pub(super) fn a_hold_expires_after_twice_its_time<F: Fixture>(fixture: &F) {
    for (micros, kind) in [(49, None), (50, None), (99, None), (100, Some(ErrorKind::UnknownHold))]
    {
        case(fixture, async |harness| {
            let policy = harness.hourly("p", 9, "");
            let held = [Charge::new(&policy, "s").cost(5)];
            check!(must(harness, Operation::Hold, &held).await.is_allowed());
            harness.at(micros);
            check_eq!(harness.remaining(&policy).await, 4, "{micros} us later");
            let id = CallId::new("id", TTL);
            let answer = harness.once(id, Operation::Settle, &[held[0].cost(2)]).await;
            check_eq!(answer.err().map(|error| error.kind()), kind, "{micros} us later");
            let left = if kind.is_none() { 7 } else { 4 };
            check_eq!(harness.remaining(&policy).await, left, "{micros} us later");
        });
    }
}

/// Checks that an extension counts from the current time, never shortens a hold, and fails after
/// the hold has lapsed.
pub(super) fn a_hold_is_extended_in_its_time<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 9, "");
        let held = [Charge::new(&policy, "s").cost(5)];
        let id = |micros| CallId::new("id", Duration::from_micros(micros));
        check!(must(harness, Operation::Hold, &held).await.is_allowed());
        for (now, ttl) in [(10, 1), (49, 50), (98, 30), (127, 20)] {
            harness.at(now);
            let answer = harness.once(id(ttl), Operation::Extend, &held).await;
            check!(answer.is_ok(), "at {now} for {ttl}: {answer:?}");
        }
        harness.at(146);
        check!(must(harness, Operation::Extend, &held).await.is_allowed());
        harness.at(196);
        check_eq!(must_fail(harness, Operation::Extend, &held).await.kind(), ErrorKind::HoldLapsed);
        harness.at(245);
        let settled = must(harness, Operation::Settle, &[held[0].cost(1)]).await;
        check_eq!(settled.amounts(), [4]);
    });
}

/// Checks that "settle so far" charges the part of the reported total that exceeds the hold, and
/// charges it once. A lower total changes nothing.
pub(super) fn a_hold_is_settled_so_far_in_totals<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        let held = [Charge::new(&policy, "s").cost(2)];
        check!(must(harness, Operation::Hold, &held).await.is_allowed());
        for (total, amount, remaining) in
            [(1, 0, 3), (2, 0, 3), (4, 2, 1), (4, 0, 1), (3, 0, 1), (5, 1, 0), (5, 0, 0)]
        {
            let so_far = must(harness, Operation::SettleSoFar, &[held[0].cost(total)]).await;
            check_eq!(so_far.amounts(), [amount], "{policy}, {total}");
            check_eq!(so_far.verdicts()[0].remaining(), remaining, "{policy}, {total}");
        }
        // A final settlement refunds the unspent part of the hold. The overage that was charged
        // before is not refunded.
        let settled = must(harness, Operation::Settle, &[held[0].cost(1)]).await;
        check_eq!(settled.amounts(), [1], "{policy}");
        check_eq!(settled.verdicts()[0].remaining(), 1, "{policy}");
    });
}

/// Checks that a settlement refunds a hold only in the window in which the hold was made. In a
/// bucket, a settlement does not refund tokens that the bucket has already refilled: after a hold
/// of 4 and a refill of 3, it refunds at most 1.
pub(super) fn a_hold_gives_back_no_more_than_is_owed<F: Fixture>(fixture: &F) {
    for policy in each() {
        for micros in [0, 1, 2, 4, 9, 10, 11, 19, 20, 30] {
            for actual in 0..=4_u64 {
                case(fixture, async |harness| {
                    // A second subject, which is charged only the actual cost, has the expected
                    // remaining amount.
                    let held = [Charge::new(&policy, "s").cost(4)];
                    let expected = [Charge::new(&policy, "expected").cost(actual)];
                    check!(must(harness, Operation::Hold, &held).await.is_allowed());
                    check!(harness.ask(Operation::Acquire, &expected).await.is_allowed());
                    harness.at(micros);
                    let settled = must(harness, Operation::Settle, &[held[0].cost(actual)]).await;
                    let expected = harness.ask(Operation::Peek, &[expected[0].cost(0)]).await;
                    // Under a phased policy, the windows of the two subjects end at different
                    // times, so the remaining amounts differ.
                    if policy.to_string().contains("phased") {
                        return;
                    }
                    check_eq!(
                        settled.verdicts()[0].remaining(),
                        expected.verdicts()[0].remaining(),
                        "{policy}: held 4, used {actual}, settled {micros} us later"
                    );
                });
            }
        }
    }
}

/// Checks that a hold and its settlement leave at most the remaining amount that a single charge of
/// the actual cost would leave. In both cases, other callers make the same random charges.
pub(super) fn holds_never_make_room_for_more<F: Fixture>(fixture: &F) {
    let step = (0..6_u64, 0..4_u64, prop_oneof![Just(0), 1..4_u64]);
    // The test compares two subjects. It excludes policies whose windows or periods begin with the
    // first charge or depend on the subject, because they would differ between the two subjects.
    let is_aligned = |policy: &Policy| {
        let text = policy.to_string();
        !["phased", "anchored", "by-interval"].iter().any(|word| text.contains(word))
    };
    let policies: Vec<Policy> = each().filter(is_aligned).collect();
    let inputs = (prop::sample::select(policies), prop::collection::vec(step, 1..8), 0..4_u64);
    cases(fixture, inputs, async |harness, (policy, steps, actual)| {
        let held = [Charge::new(policy, "s").cost(4)];
        let expected = Charge::new(policy, "expected");
        check!(must(harness, Operation::Hold, &held).await.is_allowed());
        let _ = harness.ask(Operation::Acquire, &[expected.cost(*actual)]).await;
        let mut now = 0;
        for (passes, cost, more) in steps {
            now += passes;
            harness.at(now);
            let taken = harness.ask(Operation::Acquire, &[held[0].cost(*cost)]).await;
            if taken.is_allowed() {
                let also = harness.ask(Operation::Acquire, &[expected.cost(*cost)]).await;
                check!(
                    also.is_allowed(),
                    "{policy}: a request is admitted during a hold, but refused if only actual costs are charged"
                );
            }
            let charged = [Charge::new(policy, "s").cost(*more)];
            let _ = harness.ask(Operation::Charge, &charged).await;
            let _ = harness.ask(Operation::Charge, &[expected.cost(*more)]).await;
        }
        let settled = must(harness, Operation::Settle, &[held[0].cost(*actual)]).await;
        let expected = harness.ask(Operation::Peek, &[expected.cost(0)]).await;
        check!(
            settled.verdicts()[0].remaining() <= expected.verdicts()[0].remaining(),
            "{policy}: {settled:?} after a hold, {expected:?} with actual costs only"
        );
        Ok(())
    });
}

/// Checks that a call holds all its charges or none. Each charge is settled at its own cost.
pub(super) fn several_charges_are_held_together<F: Fixture>(fixture: &F) {
    for first in each() {
        case(fixture, async |harness| {
            let (second, third) = (harness.hourly("q", 9, ""), harness.hourly("r", 9, ""));
            let charge_to = |policy, cost| Charge::new(policy, "s").tenant("t").cost(cost);
            let held =
                [charge_to(&first, 2), charge_to(&second, 8), charge_to(&third, 1).check_only()];
            check!(must(harness, Operation::Hold, &held).await.is_allowed(), "{first}");
            let before = harness.snapshot(&held).await;
            let refused = [charge_to(&first, 1), charge_to(&second, 2)];
            let other = CallId::new("other", TTL);
            let refused = harness.once(other, Operation::Hold, &refused).await;
            check!(refused.is_ok_and(|decision| decision.is_denied()), "{first}");
            check_eq!(harness.snapshot(&held).await, before, "{first}");
            let actual =
                [charge_to(&first, 3), charge_to(&second, 1), charge_to(&third, 4).check_only()];
            let settled = must(harness, Operation::Settle, &actual).await;
            check_eq!(settled.amounts(), [1, 7, 4], "{first}");
            let remaining = settled.verdicts().iter().map(|verdict| verdict.remaining());
            check_eq!(remaining.collect::<Vec<_>>(), [2, 8, 5], "{first}");
        });
    }
}

/// Checks that a charge that a shadow denies is not held and not settled.
pub(super) fn a_shadow_that_refuses_holds_nothing<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let (policy, shadow) = (harness.hourly("p", 9, ""), harness.hourly("q", 3, " shadow"));
        let charge_to = |policy, cost| Charge::new(policy, "s").tenant("t").cost(cost);
        let held = [charge_to(&policy, 4), charge_to(&shadow, 4)];
        check!(must(harness, Operation::Hold, &held).await.is_allowed());
        for (operation, cost) in [(Operation::SettleSoFar, 5), (Operation::Settle, 6)] {
            let settled =
                must(harness, operation, &[charge_to(&policy, cost), charge_to(&shadow, cost)])
                    .await;
            check_eq!(settled.amounts(), [1, 0]);
            check_eq!(settled.verdicts()[1].remaining(), 3);
        }
    });
}

/// Checks that a "hold up to" at a cost above the remaining amount holds only the remaining amount.
/// The settlement refunds the difference between the held amount and the actual cost.
pub(super) fn as_much_as_there_is_can_be_held<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.take(&policy, 2).await;
        let requested = [Charge::new(&policy, "s").cost(50)];
        let up_to = |min| Operation::HoldUpTo { min };
        check!(must(harness, up_to(4), &requested).await.is_denied(), "{policy}");
        let held = must(harness, up_to(2), &requested).await;
        check_eq!(held.amounts(), [3], "{policy}");
        check_eq!(must(harness, up_to(2), &requested).await, held, "{policy}: the same hold");
        let kind = must_fail(harness, up_to(3), &requested).await.kind();
        check_eq!(kind, ErrorKind::IdReused, "{policy}: another minimum");
        let settled = must(harness, Operation::Settle, &[requested[0].cost(1)]).await;
        check_eq!(settled.amounts(), [2], "{policy}");
    });
}

/// Checks that a settlement changes nothing if its hold does not exist, or if it names other
/// charges than the hold.
pub(super) fn a_made_up_hold_gives_nothing_back<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let (policy, larger) = (harness.hourly("p", 9, ""), harness.hourly("p", 10, ""));
        let renamed = harness.hourly("q", 9, "");
        let charge_to = |policy| Charge::new(policy, "s").tenant("t").cost(4);
        let observed =
            [charge_to(&policy), charge_to(&renamed), Charge::new(&policy, "other").tenant("t")];
        for charge in observed {
            check!(harness.ask(Operation::Acquire, &[charge.cost(4)]).await.is_allowed());
        }
        let before = harness.snapshot(&observed).await;
        for operation in [Operation::Settle, Operation::SettleSoFar, Operation::Extend] {
            let kind = must_fail(harness, operation, &[charge_to(&policy)]).await.kind();
            check_eq!(kind, ErrorKind::UnknownHold, "{operation:?}");
        }
        check_eq!(harness.snapshot(&observed).await, before);
        check!(must(harness, Operation::Hold, &[charge_to(&policy)]).await.is_allowed());
        let before = harness.snapshot(&observed).await;
        for charges in [
            vec![charge_to(&larger)],
            vec![charge_to(&renamed)],
            vec![charge_to(&policy).check_only()],
            vec![Charge::new(&policy, "other").tenant("t")],
            vec![charge_to(&policy), charge_to(&renamed)],
        ] {
            for operation in [
                Operation::Hold,
                Operation::HoldUpTo { min: 1 },
                Operation::Settle,
                Operation::SettleSoFar,
                Operation::Extend,
                Operation::Acquire,
            ] {
                let only_checks = charges.iter().all(|charge| charge.is_check_only);
                if only_checks && operation.min_amount().is_some() {
                    continue;
                }
                let kind = must_fail(harness, operation, &charges).await.kind();
                check_eq!(kind, ErrorKind::IdReused, "{operation:?} {charges:?}");
            }
        }
        // An id that names a hold cannot name another kind of call. An id that names another kind
        // of call cannot name a hold.
        let kind = must_fail(harness, Operation::Acquire, &[charge_to(&policy)]).await.kind();
        check_eq!(kind, ErrorKind::IdReused);
        check_eq!(harness.snapshot(&observed).await, before);
        let plain = CallId::new("plain", TTL);
        let answer = harness.once(plain, Operation::Charge, &[charge_to(&policy)]).await;
        check!(answer.is_ok());
        for operation in [Operation::Hold, Operation::Settle, Operation::Extend] {
            let answer = harness.once(plain, operation, &[charge_to(&policy)]).await;
            let kind = answer.map_err(|error| error.kind());
            check_eq!(kind, Err(ErrorKind::IdReused), "{operation:?}");
        }
    });
}

/// Checks that a settlement frees the slots of its hold although the limit, the lease and the
/// settings of the policy have changed in the meantime.
pub(super) fn slots_are_freed_after_a_change_of_their_limit<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = |text: &str| super::harness::policy(text);
        let before = policy("p: concurrent 2 lease 1h");
        let after = policy("p: concurrent 5 lease 2h block 1h warn 50% shadow");
        harness.needs(&before);
        harness.needs(&after);
        fn charge(policy: &Policy) -> [Charge<'_>; 1] {
            [Charge::new(policy, "s").cost(2)]
        }
        check!(must(harness, Operation::Hold, &charge(&before)).await.is_allowed());
        check_eq!(harness.remaining(&after).await, 3);
        let ended = must(harness, Operation::Settle, &[charge(&after)[0].cost(0)]).await;
        check_eq!(ended.amounts(), [2]);
        check_eq!(harness.remaining(&before).await, 2);
        // Another name or another algorithm is another policy.
        for text in ["q: concurrent 2 lease 1h", "p: fixed-window 2/1h"] {
            let other = policy(text);
            let charge = charge(&other)[0].cost(0);
            let kind = must_fail(harness, Operation::Settle, &[charge]).await.kind();
            check_eq!(kind, ErrorKind::IdReused, "{text}");
        }
    });
}

/// Checks that holds and settlements that are not valid are errors, and change nothing.
pub(super) fn a_hold_that_is_not_valid_is_an_error<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 9, "");
        let charge = Charge::new(&policy, "s").cost(4);
        check!(must(harness, Operation::Hold, &[charge]).await.is_allowed());
        for operation in [
            Operation::Hold,
            Operation::HoldUpTo { min: 1 },
            Operation::Settle,
            Operation::SettleSoFar,
            Operation::Extend,
        ] {
            let without_id = harness.try_ask(operation, &[charge]).await;
            let kind = without_id.map_err(|error| error.kind());
            check_eq!(kind, Err(ErrorKind::InvalidCall), "{operation:?} without an id");
            for charges in [vec![charge, charge], vec![charge.cost(MAX_EXACT + 1)], vec![]] {
                let kind = must_fail(harness, operation, &charges).await.kind();
                check_eq!(kind, ErrorKind::InvalidCall, "{operation:?} {charges:?}");
            }
        }
        check_eq!(harness.remaining(&policy).await, 5);
        let settled = must(harness, Operation::Settle, &[charge.cost(MAX_EXACT)]).await;
        check!(settled.amounts()[0] > 0);
    });
}

/// Checks that a hold is settled in the state to which the hold was charged, even if the limit of
/// the policy has changed.
pub(super) fn a_hold_of_a_changed_policy_is_settled_where_it_was_taken<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let (before, after) = (harness.hourly("p", 9, ""), harness.hourly("p", 7, ""));
        let held = [Charge::new(&before, "s").cost(6)];
        check!(must(harness, Operation::Hold, &held).await.is_allowed());
        harness.take(&after, 1).await;
        let settled = must(harness, Operation::Settle, &[held[0].cost(2)]).await;
        check_eq!(settled.amounts(), [4]);
        check_eq!(harness.remaining(&after).await, 4);
    });
}

fn lost(calls: usize) -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        Just(Fault::After(ErrorKind::Timeout)),
        Just(Fault::Before(ErrorKind::Unavailable)),
        Just(Fault::None),
    ];
    prop::collection::vec(fault, 0..calls)
}

/// Checks that each hold is made once and settled once, regardless of lost calls and answers.
pub(super) fn a_hold_is_settled_once_whatever_is_lost<F: Fixture>(fixture: &F) {
    let plans = (prop::collection::vec(0..9_u64, 4), lost(24));
    cases(fixture, plans, async |harness, (costs, plan)| {
        let policy = harness.hourly("p", 60, "");
        let store = Arc::clone(&harness.store).layer(Faults::new(plan.clone()));
        let charge = Charge::new(&policy, "s");
        let (mut remaining, mut open) = (60, 0);
        for (job, cost) in costs.iter().enumerate() {
            let id = job.to_le_bytes();
            let until_answered = async |operation, cost| {
                let charges = [charge.cost(cost)];
                let call = Call::new(operation, &charges).with_id(CallId::new(&id, TTL));
                until_answered(&store, call).await
            };
            check!(until_answered(Operation::Hold, 5).await?.is_allowed());
            open += 5;
            check_eq!(harness.remaining(&policy).await, remaining - open, "job {job} is held");
            let half = cost / 2;
            let so_far = until_answered(Operation::SettleSoFar, half).await?;
            check_eq!(so_far.verdicts()[0].remaining(), remaining - 5, "job {job} so far");
            let settled = until_answered(Operation::Settle, *cost).await?;
            (remaining, open) = (remaining - cost, 0);
            check_eq!(settled.verdicts()[0].remaining(), remaining, "job {job} is settled");
        }
        check_eq!(harness.remaining(&policy).await, remaining);
        Ok(())
    });
}

/// Repeats a call until the caller receives an answer.
async fn until_answered<S: Store>(store: &S, call: Call<'_>) -> Result<Decision, String> {
    loop {
        match unless_unsupported(store.decide(call).await) {
            Err(error) if !may_be_repeated(&error) => return Err(error.to_string()),
            Err(_) => {}
            Ok(decision) => return Ok(decision),
        }
    }
}

fn may_be_repeated(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable)
}

/// Checks that a hold is settled once if many concurrent callers settle it. The callers with the
/// cost of the first settlement succeed, and all others get an error.
pub(super) fn a_hold_of_many_callers_is_settled_once<F: Fixture>(fixture: &F) {
    threads(fixture, async |harness| {
        let policy = harness.hourly("p", 900, "");
        needs_ids(harness, &policy).await;
        for round in 1..=8_u64 {
            let answers = concurrently(32, |caller| {
                let (store, policy) = (Arc::clone(&harness.store), policy.clone());
                async move {
                    let id = round.to_le_bytes();
                    let (charge, id) = (Charge::new(&policy, "s"), CallId::new(&id, TTL));
                    let estimate = [charge.cost(9)];
                    let held = store.decide(Call::new(Operation::Hold, &estimate).with_id(id));
                    let held = unless_unsupported(held.await)?;
                    check!(held.is_allowed(), "caller {caller}");
                    // Half of the callers cancel the hold, and the other half settle it at 4. The
                    // first settlement decides.
                    let cost = if caller.is_multiple_of(2) { 0 } else { 4 };
                    let actual = [charge.cost(cost)];
                    let settled = store.decide(Call::new(Operation::Settle, &actual).with_id(id));
                    Ok::<_, Error>(match unless_unsupported(settled.await) {
                        Ok(_) => Some(cost),
                        Err(error) => {
                            check_eq!(error.kind(), ErrorKind::AlreadySettled);
                            None
                        }
                    })
                }
            });
            let mut settled = vec![];
            for answer in answers.await {
                match answer {
                    Ok(cost) => settled.extend(cost),
                    Err(error) => {
                        fail(&format!("one of 32 concurrent callers gets an error: {error}"));
                    }
                }
            }
            check_eq!(
                settled.len(),
                16,
                "the callers with the cost of the first settlement succeed, and no others"
            );
            settled.dedup();
            check_eq!(settled.len(), 1, "the hold must be settled at one cost");
            let remaining = harness.remaining(&policy).await;
            check_eq!(remaining, 900 - settled[0], "round {round}");
            let _ = harness.does(Operation::Reset, &policy, 0).await;
        }
    });
}
