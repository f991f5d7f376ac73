//! The tasks that fetch chunks, return chunks, and remove leases.

use std::sync::Arc;
use std::time::Duration;

use super::chunk::Chunk;
use super::config::Settings;
use super::grant::{Grantor, MAX_BATCH};
use super::in_flight::TaskCall;
use super::meter::{CostFate, HoldOutcome};
use super::table::{Candidate, LeaseTable, StoreCall};
use super::todo::{Fetch, Todo, Unspent};
use crate::sync::task::Handle;
use crate::sync::time::sleep;
use crate::{Charges, Clock, Decision, Error, Store};

/// Keeps the leases of a node, and does the work that a change of the [table](LeaseTable) requires.
/// The clones of a leased store and the tasks share one keeper.
#[derive(Debug)]
pub(super) struct Keeper<S, C> {
    pub(super) grantor: Grantor<S>,
    pub(super) clock: C,
    pub(super) table: Arc<LeaseTable>,
}

/// A fetch that a task makes. The fetch ends when this guard is dropped: after the answer, when the
/// runtime ends, or immediately if there is no runtime.
struct FetchGuard {
    table: Arc<LeaseTable>,
    fetch: Arc<Fetch>,
    no_fetch_before: u64,
    /// Counts the fetch as in flight. Rust drops this field after it has called `FetchGuard::drop`,
    /// which ends the fetch. So callers that wait for the fetch wake up after its end.
    _call: TaskCall,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.table.end_fetch(&self.fetch, self.no_fetch_before);
    }
}

impl<S: Store + 'static, C: Clock + 'static> Keeper<S, C> {
    pub(super) fn new(store: S, clock: C, settings: Settings) -> Self {
        let table = Arc::new(LeaseTable::new(settings));
        Self { grantor: Grantor::new(store, settings.span), clock, table }
    }

    pub(super) fn store(&self) -> &S {
        &self.grantor.store
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    pub(super) fn admit(self: &Arc<Self>, charges: Charges<'_>) -> Result<Decision, Candidate> {
        let mut todo = Todo::default();
        let answer = self.table.admit(charges, self.now(), &mut todo);
        self.run(todo);
        answer
    }

    pub(super) fn record(
        self: &Arc<Self>,
        StoreCall { call, candidate }: StoreCall<'_>,
        answer: &Result<Decision, Error>,
    ) {
        if let (Some(candidate), Ok(decision)) = (candidate, answer) {
            self.run(self.table.record(candidate, call.charges, decision, self.now()));
        }
    }

    #[inline]
    pub(super) fn run(self: &Arc<Self>, Todo { settle, fetch }: Todo) {
        if !settle.is_empty() {
            self.spawn_settle(settle);
        }
        if let Some(fetch) = fetch {
            self.spawn_fetch(fetch);
        }
    }

    /// Settles chunks in a task, so that a cancelled caller does not stop the settlement. Without a
    /// runtime, the unspent costs are stranded.
    fn spawn_settle(self: &Arc<Self>, unspent: Vec<Unspent>) {
        let Ok(runtime) = Handle::try_current() else {
            let cost = unspent.iter().map(|unspent| unspent.cost).sum();
            return self.table.meter.cost(CostFate::Stranded, cost);
        };
        let (keeper, call) = (Arc::clone(self), self.table.in_flight.begin_call());
        runtime.spawn(async move {
            keeper.settle(unspent).await;
            drop(call);
        });
    }

    fn spawn_fetch(self: &Arc<Self>, fetch: Arc<Fetch>) {
        let (table, _call) = (Arc::clone(&self.table), self.table.in_flight.begin_call());
        let guard = FetchGuard { table, fetch, no_fetch_before: 0, _call };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Arc::clone(self).keep(guard));
        }
    }

    /// Fetches a chunk, waits until the chunk is over, and returns its unspent cost to the store.
    /// Then waits until no caller has used the lease for a span, and removes the lease.
    async fn keep(self: Arc<Self>, guard: FetchGuard) {
        let fetch = Arc::clone(&guard.fetch);
        if let Some(deadline) = self.fetch(guard).await {
            self.sleep_past(deadline).await;
            let call = self.table.in_flight.begin_call();
            let todo = self.table.reap(&fetch, self.now());
            self.settle(todo.settle).await;
            drop(call);
        }
        while let Some(idle_at) = self.table.retire(fetch.lease, self.now()) {
            self.sleep_past(idle_at).await;
        }
    }

    async fn sleep_past(&self, time: u64) {
        let remaining = time.saturating_sub(self.now());
        sleep(Duration::from_micros(remaining.saturating_add(1))).await;
    }

    /// Fetches a chunk. Returns the time at which the chunk is over, or `None` if there is no
    /// usable chunk.
    async fn fetch(&self, mut guard: FetchGuard) -> Option<u64> {
        let fetch = Arc::clone(&guard.fetch);
        let sent = self.now();
        let answer = self.grantor.hold(&fetch).await;
        let received = self.now();
        let span_micros = self.table.settings.span_micros();
        let mut todo = Todo::default();
        let chunk = |decision| Chunk::new(&fetch, decision, sent, received, span_micros);
        let (deadline, no_fetch_before) = match answer.as_ref().ok().and_then(chunk) {
            Some(chunk) => {
                let deadline = chunk.deadline;
                self.table.meter.hold(HoldOutcome::Granted);
                self.table.meter.cost(CostFate::Granted, chunk.unspent().sum());
                let is_usable = self.table.install(chunk, received, &mut todo);
                (is_usable.then_some(deadline), 0)
            }
            None => {
                let pause = self.not_granted(&fetch, &answer, &mut todo);
                (None, received.saturating_add(pause))
            }
        };
        // The settlements in `todo` are counted as in flight before the fetch ends. So a refused
        // caller always finds the fetch or one of these settlements, and waits for it.
        let _call = self.table.in_flight.begin_call();
        guard.no_fetch_before = no_fetch_before;
        drop(guard);
        self.settle(todo.settle).await;
        deadline
    }

    /// Counts a hold for which this node gets no chunk. If the store has possibly charged the hold,
    /// adds a settlement to `todo` that cancels the hold. Returns the minimum time until the next
    /// fetch, in microseconds.
    fn not_granted(
        &self,
        fetch: &Arc<Fetch>,
        answer: &Result<Decision, Error>,
        todo: &mut Todo,
    ) -> u64 {
        let span_micros = self.table.settings.span_micros();
        let (outcome, may_be_charged, pause) = match answer {
            Ok(decision) if decision.is_denied() => (HoldOutcome::Refused, false, span_micros / 4),
            Ok(_) => (HoldOutcome::Failed, true, span_micros / 4),
            Err(error) => {
                // The store would also reject the next hold of this lease as invalid, so the lease
                // fetches no more chunks.
                let pause = if error.kind().is_invalid_request() { u64::MAX } else { span_micros };
                (HoldOutcome::Failed, !error.is_definitely_not_charged(), pause)
            }
        };
        self.table.meter.hold(outcome);
        if may_be_charged {
            todo.settle.push(self.table.unused(fetch, 0));
        }
        pause
    }

    pub(super) async fn settle(&self, unspent: Vec<Unspent>) {
        for batch in unspent.chunks(MAX_BATCH) {
            let refunded = self.grantor.settle(batch).await;
            for (unspent, refunded) in batch.iter().zip(refunded) {
                let refunded = refunded.min(unspent.cost);
                self.table.meter.cost(CostFate::GivenBack, refunded);
                self.table.meter.cost(CostFate::Stranded, unspent.cost - refunded);
            }
        }
    }
}
