//! Properties of holds, in scenarios that other products use to test their token budgets.
//!
//! | property | source |
//! |---|---|
//! | `concurrent_holds_never_exceed_the_limit` | LiteLLM#18730: 5 concurrent requests of 100 tokens each used 663 tokens at a limit of 100 per minute; praxis: concurrent reserve |
//! | `holds_are_settled_through_any_limiter` | praxis: shared state, replica restart |
//! | `a_lost_settlement_…`, `a_late_settlement_…`, `a_repeated_settlement_…` | Kuadrant RFC 0021: lost commit, late commit, commit twice; praxis: natural expiry |
//! | `an_outage_admits_no_hold_and_settles_none` | praxis: fail-closed outage |

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Error, ErrorKind, Hold, Limiter, Policy, Settlement, Store, StoreExt, Ticket};

use super::fixture::Fixture;
use super::harness::{case, concurrently, each, each_case, threads};
use super::report::{check, check_eq, fail, unless_unsupported};
use crate::stores::faults::Fault;
use crate::stores::faults::Faults;

const TTL: Duration = Duration::from_micros(50);

fn must<T>(answer: Result<T, Error>) -> T {
    unless_unsupported(answer)
        .unwrap_or_else(|error| fail(&format!("a call must not fail: {error}")))
}

/// Creates a limiter like another process does: with its own copy of each policy, parsed from the
/// policy's text.
fn limiter<S: Store>(store: S, policies: &[&Policy]) -> Limiter<S> {
    let parsed = policies.iter().map(|policy| match policy.to_string().parse() {
        Ok(policy) => policy,
        Err(error) => fail(&format!("the policy `{policy}` is not valid: {error}")),
    });
    must(Limiter::new(store, parsed))
}

async fn hold<S: Store>(limiter: &Limiter<S>, cost: u64, id: &str) -> Hold {
    must(limiter.subject("s").cost(cost).hold(id, TTL).await)
}

async fn ticket<S: Store>(limiter: &Limiter<S>, cost: u64, id: &str) -> Ticket {
    match hold(limiter, cost, id).await.into_ticket() {
        Ok(ticket) => ticket,
        Err(refusal) => fail(&format!("a hold of {cost} must be admitted: {refusal:?}")),
    }
}

async fn settle<S: Store>(limiter: &Limiter<S>, ticket: &Ticket, cost: u64) -> Settlement {
    must(limiter.settle(ticket, [("p", cost)]).await)
}

async fn settle_error<S: Store>(limiter: &Limiter<S>, ticket: &Ticket, cost: u64) -> ErrorKind {
    match unless_unsupported(limiter.settle(ticket, [("p", cost)]).await) {
        Err(error) => error.kind(),
        Ok(_) => fail("the settlement must fail"),
    }
}

/// Makes one hold for each of several concurrent callers. Returns the tickets of the admitted
/// holds.
async fn hold_concurrently<S: Store + 'static>(
    limiters: &[Limiter<S>],
    callers: usize,
    cost: u64,
    round: usize,
) -> Vec<Ticket> {
    let holds = concurrently(callers, |caller| {
        let limiter = limiters[caller % limiters.len()].clone();
        async move {
            let id = format!("{round}, {caller}");
            limiter.subject("s").cost(cost).hold(&id, TTL).await
        }
    });
    holds.await.into_iter().filter_map(|hold| must(hold).into_ticket().ok()).collect()
}

/// Checks that the concurrent holds of two processes exceed neither of two limits. A later hold can
/// use the amount that the settlement of an earlier hold has refunded.
pub(super) fn concurrent_holds_never_exceed_the_limit<F: Fixture>(fixture: &F) {
    threads(fixture, async |harness| {
        let (policy, larger) = (harness.hourly("p", 100, ""), harness.hourly("day", 400, ""));
        let other = harness.store_in_another_process().await;
        let processes =
            [Arc::clone(&harness.store), other].map(|store| limiter(store, &[&policy, &larger]));
        let mut used = 0;
        for (round, callers, cost, admitted, actual) in [
            (0, 5, 100, 1, 0),  // This is the scenario of LiteLLM#18730. The actual cost is 0.
            (1, 32, 30, 3, 20), // 60 are used in total
            (2, 5, 41, 0, 0),
            (3, 32, 10, 4, 10), // 100 are used in total
            (4, 5, 1, 0, 0),
        ] {
            let tickets = hold_concurrently(&processes, callers, cost, round).await;
            check_eq!(tickets.len(), admitted, "{callers} concurrent holds of {cost} each");
            let held: u64 = tickets.iter().map(|_| cost).sum();
            check_eq!(harness.remaining(&policy).await, 100 - used - held, "round {round}");
            check_eq!(harness.remaining(&larger).await, 400 - used - held, "round {round}");
            for (ticket, process) in tickets.iter().zip(processes.iter().rev().cycle()) {
                let costs = [("p", actual), ("day", actual)];
                let settlement = must(process.settle(ticket, costs).await);
                check_eq!(settlement.given_back("p"), cost - actual);
                used += actual;
            }
            check_eq!(harness.remaining(&policy).await, 100 - used, "round {round}");
        }
        check_eq!(harness.remaining(&larger).await, 300);
    });
}

/// Checks that a process that starts later can settle, extend and cancel the holds that another
/// process has made.
pub(super) fn holds_are_settled_through_any_limiter<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.needs(&policy);
        let first = limiter(Arc::clone(&harness.store), &[&policy]);
        let (settled, cancelled) =
            (ticket(&first, 2, "settled").await, ticket(&first, 2, "cancelled").await);
        drop(first);
        let second = limiter(harness.store_in_another_process().await, &[&policy]);
        check!(hold(&second, 2, "more").await.into_ticket().is_err(), "{policy}");
        must(second.extend(&settled, 2 * TTL).await);
        check_eq!(settle(&second, &settled, 1).await.given_back("p"), 1, "{policy}");
        check_eq!(must(second.cancel(&cancelled).await).given_back("p"), 2, "{policy}");
        check_eq!(harness.remaining(&policy).await, 4, "{policy}");
        let third = limiter(harness.store_in_another_process().await, &[&policy]);
        check_eq!(settle(&third, &settled, 1).await.given_back("p"), 1, "{policy}");
        check_eq!(settle_error(&third, &cancelled, 2).await, ErrorKind::AlreadySettled);
        check_eq!(harness.remaining(&policy).await, 4, "{policy}");
    });
}

/// Checks that a hold that is never settled stays charged, and that its state recovers like after
/// any charge, without a further call.
pub(super) fn a_lost_settlement_stays_charged_and_ends_by_itself<F: Fixture>(fixture: &F) {
    each_case(fixture, async |harness, policy| {
        harness.needs(&policy);
        let limiter = limiter(Arc::clone(&harness.store), &[&policy]);
        let lost = ticket(&limiter, 4, "lost").await;
        let refusal = harness.refused(&policy, 2).await;
        let wait = refusal.retry_after().unwrap_or_default();
        check!(!wait.is_zero(), "{policy}: a refusal must name the wait until the hold recovers");
        harness.advance(wait - Duration::from_micros(1));
        let _ = harness.refused(&policy, 2).await;
        harness.at(40);
        check_eq!(harness.remaining(&policy).await, 5, "{policy}");
        // The test settles the hold after the charge of the hold has recovered. So the settlement
        // must not refund the newer charge.
        harness.take(&policy, 3).await;
        check_eq!(settle(&limiter, &lost, 1).await.given_back("p"), 0, "{policy}");
        check_eq!(harness.remaining(&policy).await, 2, "{policy}");
    });
}

/// Checks that a settlement after the time of the hold charges the difference once. After twice the
/// time of the hold, the hold cannot be settled.
pub(super) fn a_late_settlement_charges_the_difference_once<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 100, "");
        let limiter = limiter(Arc::clone(&harness.store), &[&policy]);
        for (micros, id, actual, remaining) in
            [(50, "less", 10, 90), (60, "more", 45, 45), (99, "as much", 30, 15)]
        {
            let late = ticket(&limiter, 30, id).await;
            harness.advance(Duration::from_micros(micros));
            let first = settle(&limiter, &late, actual).await;
            check_eq!(harness.remaining(&policy).await, remaining, "{id}");
            check_eq!(settle(&limiter, &late, actual).await, first, "{id}");
            check_eq!(harness.remaining(&policy).await, remaining, "{id}");
        }
        let expired = ticket(&limiter, 15, "expired").await;
        harness.advance(2 * TTL);
        for actual in [0, 15, 90] {
            check_eq!(settle_error(&limiter, &expired, actual).await, ErrorKind::UnknownHold);
            check_eq!(harness.remaining(&policy).await, 0, "{actual}");
        }
    });
}

/// Checks that a settlement of a sliding log refunds an estimate only if its record is among the
/// newest 128 records. If the record is older, the settlement refunds nothing, and reports that the
/// hold is out of reach. A log with a grain has fewer records, because the requests of one grain
/// share a record.
pub(super) fn a_settlement_says_if_its_hold_is_out_of_reach<F: Fixture>(fixture: &F) {
    for (text, newer, is_out_of_reach) in [
        ("p: sliding-log 500/1h", 127, false),
        ("p: sliding-log 500/1h", 128, true),
        ("p: sliding-log 500/1h", 150, true),
        ("p: sliding-log 500/1h grain 1m", 150, false),
        ("p: token-bucket 500/1h", 150, false),
    ] {
        case(fixture, async |harness| {
            let policy = super::harness::policy(text);
            let limiter = limiter(Arc::clone(&harness.store), &[&policy]);
            let request = limiter.subject("s").cost(4);
            let hold = must(request.hold("estimate", Duration::from_secs(60)).await);
            let Ok(ticket) = hold.into_ticket() else { fail("the hold must be admitted") };
            for _ in 0..newer {
                harness.advance(Duration::from_micros(1));
                harness.take(&policy, 1).await;
            }
            let settlement = settle(&limiter, &ticket, 1).await;
            let refunded = if is_out_of_reach { 0 } else { 3 };
            check_eq!(settlement.given_back("p"), refunded, "{text}, {newer}");
            check_eq!(settlement.is_out_of_reach("p"), is_out_of_reach, "{text}, {newer}");
            let remaining = 496 - newer + refunded;
            check_eq!(harness.remaining(&policy).await, remaining, "{text}, {newer}");
            // A repeated settlement returns the first settlement.
            check_eq!(settle(&limiter, &ticket, 1).await, settlement, "{text}, {newer}");
        });
    }
    case(fixture, async |harness| {
        // One window after the hold, the estimate does not count any more, so there is nothing to
        // refund. The settlement therefore does not report that the hold is out of reach.
        let policy = super::harness::policy("p: sliding-log 500/1ms");
        let limiter = limiter(Arc::clone(&harness.store), &[&policy]);
        let request = limiter.subject("s").cost(4);
        let hold = must(request.hold("estimate", Duration::from_secs(60)).await);
        let Ok(ticket) = hold.into_ticket() else { fail("the hold must be admitted") };
        harness.advance(Duration::from_millis(1));
        for _ in 0..150 {
            harness.advance(Duration::from_micros(1));
            harness.take(&policy, 1).await;
        }
        let settlement = settle(&limiter, &ticket, 1).await;
        check_eq!(settlement.given_back("p"), 0);
        check!(!settlement.is_out_of_reach("p"));
    });
}

/// Checks that a repeated settlement charges once, even if the first answer was lost. If the costs
/// of the repeated settlement differ, it is an error.
pub(super) fn a_repeated_settlement_charges_once<F: Fixture>(fixture: &F) {
    for policy in each() {
        for (actual, remaining) in [(0, 5), (1, 4), (4, 1), (7, 0)] {
            case(fixture, async |harness| {
                harness.needs(&policy);
                let faults = vec![Fault::None, Fault::After(ErrorKind::Timeout)];
                let store = Arc::new(Arc::clone(&harness.store).layer(Faults::new(faults)));
                let limiter = limiter(store, &[&policy]);
                let ticket = ticket(&limiter, 4, "id").await;
                check_eq!(settle_error(&limiter, &ticket, actual).await, ErrorKind::Timeout);
                let settlement = settle(&limiter, &ticket, actual).await;
                let (refunded, charged) = (4_u64.saturating_sub(actual), actual.saturating_sub(4));
                check_eq!(settlement.given_back("p"), refunded, "{policy}, {actual}");
                check_eq!(settlement.charged("p"), charged, "{policy}, {actual}");
                for other in [actual + 1, 12] {
                    let kind = settle_error(&limiter, &ticket, other).await;
                    check_eq!(kind, ErrorKind::AlreadySettled, "{policy}, {actual}, {other}");
                }
                check_eq!(
                    settle(&limiter, &ticket, actual).await,
                    settlement,
                    "{policy}, {actual}"
                );
                check_eq!(harness.remaining(&policy).await, remaining, "{policy}, {actual}");
            });
        }
    }
}

/// Checks that while the store is down, a hold fails and charges nothing, and a settlement fails
/// and settles nothing. The caller can repeat both calls later.
pub(super) fn an_outage_admits_no_hold_and_settles_none<F: Fixture>(fixture: &F) {
    case(fixture, async |harness| {
        let policy = harness.hourly("p", 100, "");
        let down = Fault::Before(ErrorKind::Unavailable);
        let plan = vec![down, down, Fault::None, down, down];
        let store = Arc::new(Arc::clone(&harness.store).layer(Faults::new(plan)));
        let limiter = limiter(store, &[&policy]);
        for _ in 0..2 {
            let answer = unless_unsupported(limiter.subject("s").cost(60).hold("id", TTL).await);
            check_eq!(
                answer.map(|_| ()).map_err(|error| error.kind()),
                Err(ErrorKind::Unavailable)
            );
            check_eq!(harness.remaining(&policy).await, 100);
        }
        let ticket = ticket(&limiter, 60, "id").await;
        for _ in 0..2 {
            check_eq!(settle_error(&limiter, &ticket, 10).await, ErrorKind::Unavailable);
            check_eq!(harness.remaining(&policy).await, 40);
        }
        check_eq!(settle(&limiter, &ticket, 10).await.given_back("p"), 50);
        check_eq!(harness.remaining(&policy).await, 90);
    });
}
