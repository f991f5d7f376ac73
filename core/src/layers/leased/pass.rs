//! Calls that go to the store, and what becomes of the chunks that they concern: the documentation of the configuration has the table.

use std::collections::HashSet;
use std::sync::Arc;

use super::Shared;
use super::entry::Entry;
use super::in_flight::{Pause, Settled};
use super::key::{call_hash, is_plain_acquire, state_key, state_keys};
use crate::layers::generations::Keys;
use crate::{Answer, Call, Clock, Decision, Error, ErrorKind, Operation, Outcome, Store};

/// What becomes of the chunks of the states of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunks {
    /// They stay.
    Stay,
    /// They stay if a peek shows that the store has enough without them. Otherwise, they are
    /// returned before the call.
    StayIfEnough,
    /// They are returned before the call, and no chunk is fetched until it is answered.
    GoBack,
}

fn chunks_under(operation: Operation) -> Chunks {
    match operation {
        Operation::Acquire | Operation::Hold => Chunks::Stay,
        Operation::Peek | Operation::Charge => Chunks::Stay,
        Operation::Settle | Operation::SettleSoFar | Operation::Extend => Chunks::Stay,
        Operation::AcquireUpTo { .. } | Operation::HoldUpTo { .. } => Chunks::StayIfEnough,
        Operation::Reserve { .. } => Chunks::StayIfEnough,
        Operation::Refund | Operation::Undo { .. } | Operation::Reset => Chunks::GoBack,
        Operation::Block { .. } | Operation::BlockAtLeast { .. } => Chunks::GoBack,
    }
}

/// Returns `true` if chunks of the call's states may have to be returned before the call.
pub(super) fn concerns_chunks(call: &Call<'_>) -> bool {
    chunks_under(call.operation) != Chunks::Stay || call.operation.is_acquire() && may_block(call)
}

/// The hash of a call that can be leased, and whether it is.
type Lease = Option<(u64, bool)>;

/// How often an acquire that was refused is sent again. Without chunks of other callers once is enough.
const MAX_RETRIES: usize = 3;

/// Why an acquire was refused.
enum Cause {
    /// Other nodes and callers have taken too much, or it was not refused.
    Other,
    /// A chunk that is on its way to this node, or back to the store.
    OnItsWay,
    /// The chunks of these states.
    Chunks(Keys),
    /// Chunks that were given back since.
    GivenBack,
}

impl<S: Store + 'static, C: Clock + 'static> Shared<S, C> {
    /// Passes on a call that is not admitted from a chunk.
    pub(super) fn pass<'a>(
        self: &'a Arc<Self>,
        call: Call<'a>,
    ) -> Answer<'a, Result<Decision, Error>> {
        match chunks_under(call.operation) {
            Chunks::Stay if call.operation == Operation::Peek => {
                self.inner.decide(call).map(move |answer| Ok(self.with_left(&call, answer?)))
            }
            Chunks::Stay if call.operation.is_acquire() => self.pass_acquire(call, None),
            Chunks::Stay => self.inner.decide(call),
            Chunks::StayIfEnough if self.leases.have_no_chunks() => self.inner.decide(call),
            Chunks::StayIfEnough if !may_block(&call) => Answer::later(self.pass_if_enough(call)),
            Chunks::StayIfEnough | Chunks::GoBack => Answer::later(self.pass_prepared(call)),
        }
    }

    async fn pass_prepared(self: &Arc<Self>, call: Call<'_>) -> Result<Decision, Error> {
        let _pause = self.prepare(&call).await;
        self.inner.decide(call).await
    }

    /// Passes on a call whose answer depends on all of the remaining budget, unless the store has
    /// enough for its whole cost. In that case the chunks stay, so that a small share of such calls
    /// does not switch leases off.
    async fn pass_if_enough(self: &Arc<Self>, call: Call<'_>) -> Result<Decision, Error> {
        let states = state_keys(call.charges, &self.leases.hasher);
        if !self.leases.hold_any_of(&states) {
            return self.inner.decide(call).await;
        }
        let peek = Call { operation: Operation::Peek, id: None, ..call };
        let peek = self.inner.decide(peek).await;
        let has_enough = peek.is_ok_and(|decision| {
            let mut verdicts = decision.verdicts().iter();
            decision.degraded().is_none()
                && verdicts.all(|verdict| verdict.outcome() == Outcome::Allowed)
        });
        if !has_enough {
            return self.pass_prepared(call).await;
        }
        // Other callers may have taken the budget since the peek.
        let settled = self.leases.in_flight.settled();
        let answer = self.inner.decide(call).await;
        self.asked_again(call, None, answer, settled).await
    }

    /// Passes on an acquire.
    pub(super) fn pass_acquire<'a>(
        self: &'a Arc<Self>,
        call: Call<'a>,
        lease: Lease,
    ) -> Answer<'a, Result<Decision, Error>> {
        if !self.leases.have_no_chunks() && may_block(&call) {
            return Answer::later(self.pass_prepared(call));
        }
        let settled = self.leases.in_flight.settled();
        match self.inner.decide(call).into_ready() {
            Ok(answer) if matches!(self.cause(&call, &answer, settled), Cause::Other) => {
                self.answered(&call, lease, &answer);
                Answer::ready(answer)
            }
            Ok(answer) => Answer::later(self.asked_again(call, lease, answer, settled)),
            Err(later) => Answer::later(async move {
                let answer = self.asked_again(call, lease, later.await, settled).await;
                self.answered(&call, lease, &answer);
                answer
            }),
        }
    }

    /// Leases a call that was admitted, if it is hot.
    fn answered(self: &Arc<Self>, call: &Call<'_>, lease: Lease, answer: &Result<Decision, Error>) {
        if let (Some((hash, is_leased)), Ok(decision)) = (lease, answer) {
            let now = self.now();
            let (fetch, replaced) =
                self.leases.consider(hash, call.charges, decision, is_leased, now);
            self.spawn_settle(replaced);
            if let Some(fetch) = fetch {
                self.spawn_fetch(fetch);
            }
        }
    }

    /// Returns the chunks of a call's states to the store. Until the guard is dropped, no chunk of
    /// them is here or in flight, so that the call neither misses a chunk nor removes its charge.
    async fn prepare(self: &Arc<Self>, call: &Call<'_>) -> Pause {
        let states = state_keys(call.charges, &self.leases.hasher);
        let pause = self.leases.in_flight.pause(&states);
        self.give_back(&states).await;
        pause
    }

    fn interrupt(&self) -> impl Fn(&mut Entry) {
        let (now, settings) = (self.now(), &self.leases.settings);
        move |entry| entry.interrupt(now, settings)
    }

    /// Gives back the chunks of these states, those in flight too, and waits until the store has
    /// answered.
    async fn give_back(self: &Arc<Self>, states: &[u64]) {
        let in_flight = &self.leases.in_flight;
        if self.leases.is_closed() {
            // Closing has removed the leases, but not the chunks that are in flight.
            in_flight.all_calls_ended().await;
        }
        loop {
            let next_end = in_flight.next_end();
            let (rests, is_fetching) = self.leases.take_chunks(states, self.interrupt());
            // A task settles the chunks, so that the settlement continues if the caller is
            // cancelled.
            self.spawn_settle(rests);
            let is_settling = |state: &u64| in_flight.of_state(*state, u64::MAX) == Settled::Soon;
            if !is_fetching && !states.iter().any(is_settling) {
                return;
            }
            next_end.await;
        }
    }

    /// The answer to an acquire, if it was refused only because of the chunks of this node. `settled` is the number of
    /// settlements from before it was sent.
    async fn asked_again(
        self: &Arc<Self>,
        call: Call<'_>,
        lease: Lease,
        mut answer: Result<Decision, Error>,
        mut settled: u64,
    ) -> Result<Decision, Error> {
        let in_flight = &self.leases.in_flight;
        let mut retries = 0;
        loop {
            // From before the look at the chunks.
            let next_end = in_flight.next_end();
            match self.cause(&call, &answer, settled) {
                Cause::OnItsWay => next_end.await,
                Cause::Chunks(states) => {
                    if let Some((hash, _)) = lease
                        && let Ok(decision) = self.admit_refused(hash, &call)
                    {
                        return Ok(decision);
                    }
                    // No chunk is fetched for a while, because its charge would refuse calls again.
                    let rests_until =
                        self.now().saturating_add(self.leases.settings.span_micros() / 4);
                    let rest = |entry: &mut Entry| entry.rest_until(rests_until);
                    // A task settles the chunks, so that the settlement continues if the caller is
                    // cancelled.
                    self.spawn_settle(self.leases.take_chunks(&states, rest).0);
                }
                Cause::GivenBack if retries < MAX_RETRIES => {
                    retries += 1;
                    settled = in_flight.settled();
                    answer = self.inner.decide(call).await;
                }
                Cause::Other | Cause::GivenBack => return answer,
            }
        }
    }

    /// Why an acquire was refused: whether each charge that refuses might admit with the chunks of its state.
    fn cause(&self, call: &Call<'_>, answer: &Result<Decision, Error>, settled: u64) -> Cause {
        let refused = answer.as_ref().ok().filter(|it| it.is_denied() && it.degraded().is_none());
        let in_flight = &self.leases.in_flight;
        let Some(decision) =
            refused.filter(|_| self.leases.len() > 0 || in_flight.is_any_settled(settled))
        else {
            return Cause::Other;
        };
        let now = self.now();
        let (mut states, mut is_on_its_way) = (Keys::new(), false);
        for index in decision.refused_by() {
            let of_call = call.charges.get(index).zip(decision.verdicts().get(index));
            let Some((charge, verdict)) = of_call else { return Cause::Other };
            let cost = min_cost(call.operation, call.charges.total_cost_for(&charge));
            if verdict.outcome() != Outcome::Denied || cost > verdict.limit() {
                return Cause::Other;
            }
            let state = state_key(&charge, &self.leases.hasher);
            // In the order of its life, so that no chunk is missed that goes on meanwhile.
            let is_fetching = self.leases.is_fetching(state);
            let left = self.leases.left_of(state, now);
            let given_back = in_flight.of_state(state, settled);
            if left > 0 && cost <= verdict.remaining().saturating_add(left) {
                states.push(state);
            } else if is_fetching || given_back == Settled::Soon {
                is_on_its_way = true;
            } else if given_back == Settled::No {
                return Cause::Other;
            }
        }
        if is_on_its_way {
            Cause::OnItsWay
        } else if states.is_empty() {
            Cause::GivenBack
        } else {
            Cause::Chunks(states)
        }
    }

    /// The answer to a peek, with what is left of the chunks.
    fn with_left(&self, call: &Call<'_>, mut decision: Decision) -> Decision {
        if self.leases.len() == 0 || decision.degraded().is_some() {
            return decision;
        }
        let now = self.now();
        for (verdict, charge) in decision.verdicts_mut().iter_mut().zip(call.charges.iter()) {
            let left = self.leases.left_of(state_key(&charge, &self.leases.hasher), now);
            *verdict = verdict.with_more_remaining(left, call.charges.total_cost_for(&charge));
        }
        decision
    }

    /// Admits calls of a batch from chunks, and passes on the others.
    pub(super) fn pass_many<'a>(
        self: &'a Arc<Self>,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let mut batch = Batch::default();
        // A call that shares a state with one that is sent is sent too, so that their order stays.
        let mut sent_states = HashSet::with_hasher(self.leases.hasher.clone());
        for call in calls {
            let states = state_keys(call.charges, &self.leases.hasher);
            let mut lease = None;
            if is_plain_acquire(call) {
                let hash = call_hash(call.charges, &self.leases.hasher);
                let is_first = states.iter().all(|state| !sent_states.contains(state));
                match if is_first { self.admit(hash, call) } else { Err(false) } {
                    Ok(decision) => {
                        batch.known.push(Some(decision));
                        continue;
                    }
                    Err(is_leased) => lease = Some((hash, is_leased)),
                }
            }
            sent_states.extend(states);
            batch.known.push(None);
            batch.sent.push((*call, lease));
        }
        if batch.sent.is_empty() {
            return Answer::ready(batch.merge(vec![]));
        }
        Answer::later(async move {
            let mut pauses = Vec::new();
            for (call, _) in &batch.sent {
                // Also where a single call would peek: a peek does not see the charges of earlier
                // calls of the batch.
                if concerns_chunks(call) {
                    pauses.push(self.prepare(call).await);
                }
            }
            let settled = self.leases.in_flight.settled();
            let sent: Vec<_> = batch.sent.iter().map(|(call, _)| *call).collect();
            let mut answers = self.inner.decide_many(&sent).await;
            drop(pauses);
            for ((call, lease), answer) in batch.sent.iter().zip(&mut answers) {
                if call.operation.is_acquire() {
                    let first = std::mem::replace(answer, Err(missing()));
                    *answer = self.asked_again(*call, *lease, first, settled).await;
                    self.answered(call, *lease, answer);
                } else if call.operation == Operation::Peek
                    && let Ok(decision) = answer
                {
                    *decision = self.with_left(call, decision.clone());
                }
            }
            batch.merge(answers)
        })
    }
}

/// Returns `true` if a refusal of the call may block a subject.
fn may_block(call: &Call<'_>) -> bool {
    call.charges.any_policy(|policy| policy.block_micros() > 0)
}

/// Returns the minimum cost at which a charge of up to `cost` can be admitted.
fn min_cost(operation: Operation, cost: u64) -> u64 {
    match operation {
        Operation::AcquireUpTo { min } | Operation::HoldUpTo { min } => min.min(cost),
        _ => cost,
    }
}

/// A batch, of which some calls are admitted, and the others are sent, each with its lease.
#[derive(Default)]
struct Batch<'a> {
    /// Of each call, in order; `None` if it is sent.
    known: Vec<Option<Decision>>,
    sent: Vec<(Call<'a>, Lease)>,
}

impl Batch<'_> {
    /// The answers to all calls, in order.
    fn merge(self, answers: Vec<Result<Decision, Error>>) -> Vec<Result<Decision, Error>> {
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Err(missing()));
        self.known.into_iter().map(|known| known.map_or_else(&mut next, Ok)).collect()
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::Protocol, "the store returned fewer answers than there were calls")
}

#[cfg(all(test, not(tidegate_schedules)))]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::Lease;
    use super::super::LeasedStore;
    use super::super::table::Leases;
    use super::*;
    use crate::time::Wait;
    use crate::{Charge, Policy, StoreExt, Timestamp, Verdict};

    /// Refuses each call, the first ones while a chunk of the state is given back.
    #[derive(Debug)]
    struct Refusing {
        leases: OnceLock<Arc<Leases>>,
        given_back: usize,
        calls: AtomicUsize,
    }

    impl Store for Refusing {
        fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
            let earlier = self.calls.fetch_add(1, Ordering::Relaxed);
            if earlier < self.given_back
                && let Some(leases) = self.leases.get()
            {
                let states = state_keys(call.charges, &leases.hasher);
                drop(leases.in_flight.begin_settlement(&states));
            }
            let verdict = Verdict::from_micros(Outcome::Denied, 1, 0, Wait::ZERO, 0);
            Answer::ready(Ok(Decision::one(verdict)))
        }

        fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
            Answer::ready(Ok(Timestamp::from_micros(0)))
        }
    }

    #[tokio::test]
    async fn a_refused_call_is_sent_again_if_something_was_given_back_and_a_few_times_at_most() {
        for (given_back, calls) in [(0, 1), (1, 2), (2, 3), (100, 1 + MAX_RETRIES)] {
            let store =
                Refusing { leases: OnceLock::new(), given_back, calls: AtomicUsize::new(0) };
            let store: LeasedStore<Refusing> = store.leased(Lease::new());
            let leases = Arc::clone(&store.owner.shared.leases);
            store.inner().leases.set(leases).expect("it is set once");
            let policy: Policy = "fixed-window 1/1s".parse().expect("a policy");
            let charges = [Charge::new(&policy, "s")];
            assert!(store.decide(Call::acquire(&charges)).await.expect("an answer").is_denied());
            assert_eq!(store.inner().calls.load(Ordering::Relaxed), calls);
        }
    }
}
