//! Acquires that the store has refused. A node must not refuse an acquire because of its own
//! chunks. If chunks are the cause, the acquire is admitted from the chunks, or the chunks are
//! returned and the acquire is sent again.

use std::sync::Arc;

use super::in_flight::Progress;
use super::keeper::Keeper;
use super::key::state_key;
use super::table::StoreCall;
use super::todo::Todo;
use crate::layers::generations::Keys;
use crate::{Call, Clock, Decision, Error, Operation, Outcome, Store};

/// The maximum number of times that a refused acquire is sent again. One retry is enough if no
/// chunks for other callers are fetched or returned during the retry.
pub(super) const MAX_RETRIES: usize = 3;

pub(super) enum Cause {
    /// A chunk that is being fetched from the store or returned to the store.
    InFlight,
    /// The unspent cost in chunks that this node has for these states.
    Chunks(Keys),
    /// Chunks of this node that were returned after the call was sent.
    Returned,
}

/// Returns the final answer to an acquire, and records the answer. As long as chunks of this node
/// are the cause of a refusal, admits the acquire from these chunks or sends the acquire again.
///
/// `settled` is the number of settlements of this node that had ended before the call was sent.
pub(super) async fn resolve<S: Store + 'static, C: Clock + 'static>(
    keeper: &Arc<Keeper<S, C>>,
    sent: StoreCall<'_>,
    mut answer: Result<Decision, Error>,
    mut settled: u64,
) -> Result<Decision, Error> {
    let (table, in_flight, call) = (&keeper.table, &keeper.table.in_flight, sent.call);
    let mut retries = 0;
    loop {
        // `next_end` is created before `cause` reads the chunks, so that it also reports a fetch
        // that ends during the read.
        let next_end = in_flight.next_end();
        match cause(keeper, &call, &answer, settled) {
            Some(Cause::InFlight) => next_end.await,
            Some(Cause::Chunks(states)) => {
                let (now, mut todo) = (keeper.now(), Todo::default());
                if let Some(candidate) = sent.candidate
                    && let Some(decision) =
                        table.admit_refused(candidate, call.charges, now, &mut todo)
                {
                    keeper.run(todo);
                    answer = Ok(decision);
                    break;
                }
                // The leases fetch no chunk for a while, because a further chunk would cause
                // another refusal.
                let until = now.saturating_add(table.settings.span_micros() / 4);
                for state in states {
                    table.visit_leases(state, |entry| {
                        entry.prevent_fetch_until(until);
                        entry.take_chunks(&mut todo);
                    });
                }
                keeper.run(todo);
            }
            Some(Cause::Returned) if retries < MAX_RETRIES => {
                retries += 1;
                settled = in_flight.settled();
                answer = keeper.store().decide(call).await;
            }
            Some(Cause::Returned) | None => break,
        }
    }
    keeper.record(sent, &answer);
    answer
}

/// Returns the cause of a refusal if chunks of this node have possibly caused it. Returns `None` if
/// the answer is not a refusal, or if the store would refuse a charge even without these chunks.
pub(super) fn cause<S: Store + 'static, C: Clock + 'static>(
    keeper: &Keeper<S, C>,
    call: &Call<'_>,
    answer: &Result<Decision, Error>,
    settled: u64,
) -> Option<Cause> {
    let (table, in_flight) = (&keeper.table, &keeper.table.in_flight);
    let decision = answer.as_ref().ok()?;
    let is_refused = decision.is_denied() && decision.degraded().is_none();
    if !is_refused || table.len() == 0 && !in_flight.is_any_settled(settled) {
        return None;
    }
    let now = keeper.now();
    let (mut states, mut is_in_flight) = (Keys::new(), false);
    for index in decision.refused_by() {
        let (charge, verdict) = call.charges.get(index).zip(decision.verdicts().get(index))?;
        let cost = min_cost(call.operation, call.charges.total_cost_for(&charge));
        // A quota with grants or rolled-over quota admits a cost above the limit.
        let is_too_large = cost > verdict.limit() && !charge.policy.is_quota();
        if verdict.outcome() != Outcome::Denied || is_too_large {
            return None;
        }
        let state = state_key(&charge, &table.hasher);
        // A chunk is first fetched, then used in its lease, and then in flight to the store. The
        // reads follow this order, so that they also find a chunk that a task returns between two
        // reads.
        let (mut is_fetching, mut unspent) = (false, 0_u64);
        table.visit_leases(state, |entry| {
            is_fetching |= entry.is_fetching;
            unspent = unspent.saturating_add(entry.unspent_of(state, now));
        });
        let settlements = in_flight.progress(state, settled);
        if unspent > 0 && cost <= verdict.remaining().saturating_add(unspent) {
            states.push(state);
        } else if is_fetching || settlements == Progress::InFlight {
            is_in_flight = true;
        } else if settlements == Progress::None {
            return None;
        }
    }
    Some(match states.is_empty() {
        _ if is_in_flight => Cause::InFlight,
        true => Cause::Returned,
        false => Cause::Chunks(states),
    })
}

/// Returns the minimum amount that the operation must get: `min` for an acquire up to or a hold up
/// to, and `cost` for any other operation.
fn min_cost(operation: Operation, cost: u64) -> u64 {
    match operation {
        Operation::AcquireUpTo { min } | Operation::HoldUpTo { min } => min.min(cost),
        _ => cost,
    }
}

#[cfg(all(test, not(tidegate_schedules)))]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::key::state_keys;
    use super::super::table::LeaseTable;
    use super::super::{Lease, LeasedStore};
    use super::*;
    use crate::time::Wait;
    use crate::{Answer, Charge, Policy, StoreExt, Timestamp, Verdict};

    /// A store that refuses each call. A chunk of the state is returned during each of the first
    /// `returned` calls.
    #[derive(Debug)]
    struct Refusing {
        table: OnceLock<Arc<LeaseTable>>,
        returned: usize,
        calls: AtomicUsize,
    }

    impl Store for Refusing {
        fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
            let earlier = self.calls.fetch_add(1, Ordering::Relaxed);
            if earlier < self.returned
                && let Some(table) = self.table.get()
            {
                let states = state_keys(call.charges, &table.hasher);
                drop(table.in_flight.begin_settlement(&states));
            }
            let verdict = Verdict::from_micros(Outcome::Denied, 1, 0, Wait::ZERO, 0);
            Answer::ready(Ok(Decision::one(verdict)))
        }

        fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
            Answer::ready(Ok(Timestamp::from_micros(0)))
        }
    }

    #[tokio::test]
    async fn a_refused_call_is_sent_again_if_a_chunk_was_returned_and_a_few_times_at_most() {
        for (returned, calls) in [(0, 1), (1, 2), (2, 3), (100, 1 + MAX_RETRIES)] {
            let store = Refusing { table: OnceLock::new(), returned, calls: AtomicUsize::new(0) };
            let store: LeasedStore<Refusing> = store.leased(Lease::new());
            let table = Arc::clone(&store.owner.keeper.table);
            store.inner().table.set(table).expect("it is set once");
            let policy: Policy = "fixed-window 1/1s".parse().expect("a policy");
            let charges = [Charge::new(&policy, "s")];
            assert!(store.decide(Call::acquire(&charges)).await.expect("an answer").is_denied());
            assert_eq!(store.inner().calls.load(Ordering::Relaxed), calls);
        }
    }
}
