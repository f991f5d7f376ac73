//! The calls of leases to the store: holds of chunks, and their settlements.
//!
//! A chunk is a [hold](crate::Operation::Hold): its settlement gives back what was not used in the window in which it was
//! taken, of a bucket more than an undo of the same would, and can do so only once. The store remembers when the chunk was
//! taken, which a decision does not tell.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::chunk::{Chunk, Grant, PerCharge};
use super::entry::{Fetch, Rest};
use super::in_flight::InFlightCall;
use super::meter::{CostFate, HoldOutcome};
use super::table::{Installed, Leases};
use crate::owned_charge::OwnedCharge;
use crate::sync::task::Handle;
use crate::sync::time::sleep;
use crate::{Call, CallId, Charge, Clock, Decision, Error, Operation, Store};

/// The minimum time to live of a hold: a settlement may be late by as much.
const MIN_TTL: Duration = Duration::from_secs(2);

/// The maximum number of settlements in a batch.
const MAX_BATCH: usize = 128;

/// Ids of the holds of this layer.
#[derive(Debug)]
pub(super) struct Ids {
    /// Random, so that no two nodes have the same ids.
    node: [u64; 2],
}

impl Ids {
    pub(super) fn new() -> Self {
        Self { node: [0, 1].map(|half| RandomState::new().hash_one(half)) }
    }

    fn id(&self, number: u64) -> [u8; 30] {
        let mut id = *b"lease.........................";
        for (place, part) in [self.node[0], self.node[1], number].into_iter().enumerate() {
            id[6 + 8 * place..][..8].copy_from_slice(&part.to_be_bytes());
        }
        id
    }
}

/// A fetch of a task. If the task is dropped before it has ended the fetch, even before it has begun, as when its
/// runtime ends, the fetch ends with it.
struct Fetching {
    leases: Arc<Leases>,
    fetch: Arc<Fetch>,
    is_ended: bool,
    /// Wakes those that wait for the fetch. It is dropped after the fetch has ended.
    _in_flight: InFlightCall,
}

impl Fetching {
    fn end(&mut self, now: u64, rest: u64) {
        self.is_ended = true;
        self.leases.end_fetch(&self.fetch, now, rest);
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if !self.is_ended {
            self.leases.end_fetch(&self.fetch, 0, 0);
        }
    }
}

impl<S: Store + 'static, C: Clock + 'static> Shared<S, C> {
    /// Spawns a task that fetches a chunk, returns its unspent cost when it is over, and removes
    /// the lease when it is not used any more.
    pub(super) fn spawn_fetch(self: &Arc<Self>, fetch: Arc<Fetch>) {
        let (leases, _in_flight) = (Arc::clone(&self.leases), self.leases.in_flight.begin());
        let fetching = Fetching { leases, fetch, is_ended: false, _in_flight };
        // Without a runtime it ends here.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Arc::clone(self).keep(fetching));
        }
    }

    /// Gives back what is left of chunks, by a task.
    pub(super) fn spawn_settle(self: &Arc<Self>, rests: Vec<Rest>) {
        if rests.is_empty() {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => {
                let (shared, in_flight) = (Arc::clone(self), self.leases.in_flight.begin());
                runtime.spawn(async move {
                    shared.settle(rests).await;
                    drop(in_flight);
                });
            }
            Err(_) => self.stranded(rests.iter().map(|it| it.left).sum()),
        }
    }

    async fn keep(self: Arc<Self>, mut fetching: Fetching) {
        let fetch = Arc::clone(&fetching.fetch);
        let deadline = self.fetch(&mut fetching).await;
        drop(fetching);
        if let Some(deadline) = deadline {
            self.sleep_past(deadline).await;
            let in_flight = self.leases.in_flight.begin();
            let rests = self.leases.reap(&fetch, self.now());
            self.settle(rests).await;
            drop(in_flight);
        }
        while let Some(idle_at) = self.leases.retire(&fetch, self.now()) {
            self.sleep_past(idle_at).await;
        }
    }

    /// Sleeps until this time by the clock of the layer has passed.
    async fn sleep_past(&self, time: u64) {
        let left = time.saturating_sub(self.now());
        sleep(Duration::from_micros(left.saturating_add(1))).await;
    }

    /// Returns when the chunk is over, if there is one.
    async fn fetch(&self, fetching: &mut Fetching) -> Option<u64> {
        let settings = &self.leases.settings;
        let fetch = Arc::clone(&fetching.fetch);
        let sent = self.now();
        let answer = self.hold(&fetch).await;
        let received = self.now();
        let (number, span_micros) = (fetch.number, settings.span_micros());
        let grant = Grant { number, sent, received, span_micros };
        let chunk = answer.as_ref().ok().and_then(|it| Chunk::new(grant, &fetch.charges, it));
        let Some(chunk) = chunk else {
            let rest = match &answer {
                // It cannot be held, now or later.
                Err(error) if error.kind().is_invalid_request() => u64::MAX,
                Err(_) => span_micros,
                Ok(_) => span_micros / 4,
            };
            let not_granted = self.not_granted(&fetch, &answer);
            fetching.end(received, rest);
            self.settle(not_granted.into_iter().collect()).await;
            return None;
        };
        let (deadline, left) = (chunk.deadline(), chunk.left().sum());
        self.leases.meter.hold(HoldOutcome::Granted);
        self.leases.meter.cost(CostFate::Granted, left);
        let (is_installed, rest) = match self.leases.install(&fetch, chunk, received) {
            Installed::Yes(replaced) => (true, replaced),
            Installed::Unwanted => (false, Some(self.leases.unused(&fetch, left))),
        };
        // By now its settlement is in flight, if there is one: a refused caller waits for either.
        fetching.end(received, 0);
        self.settle(rest.into_iter().collect()).await;
        is_installed.then_some(deadline)
    }

    /// Counts a hold without a chunk, and returns what cancels it if it may have been made.
    fn not_granted(&self, fetch: &Fetch, answer: &Result<Decision, Error>) -> Option<Rest> {
        let (outcome, may_be_held) = match answer {
            Ok(decision) if decision.is_denied() => (HoldOutcome::Refused, false),
            Ok(_) => (HoldOutcome::Failed, true),
            Err(error) => (HoldOutcome::Failed, !error.is_definitely_not_charged()),
        };
        self.leases.meter.hold(outcome);
        may_be_held.then(|| self.leases.unused(fetch, 0))
    }

    async fn hold(&self, fetch: &Fetch) -> Result<Decision, Error> {
        let charges = borrowed(&fetch.charges);
        let id = self.ids.id(fetch.number);
        let call = Call::new(Operation::Hold, &charges);
        self.inner.decide(call.with_id(CallId::new(&id, self.ttl()))).await
    }

    /// Gives back what is left of chunks.
    pub(super) async fn settle(&self, rests: Vec<Rest>) {
        for rests in rests.chunks(MAX_BATCH) {
            let charges: Vec<_> = rests.iter().map(|rest| borrowed(&rest.charges)).collect();
            let ids: Vec<_> = rests.iter().map(|rest| self.ids.id(rest.number)).collect();
            let calls: Vec<_> = (charges.iter().zip(&ids))
                .map(|(charges, id)| {
                    Call::new(Operation::Settle, charges).with_id(CallId::new(id, self.ttl()))
                })
                .collect();
            let answers = match &calls[..] {
                [call] => vec![self.inner.decide(*call).await],
                calls => self.inner.decide_many(calls).await,
            };
            for (index, rest) in rests.iter().enumerate() {
                let amounts = answers.get(index).and_then(|answer| answer.as_ref().ok());
                let amounts = amounts.map_or(&[][..], |it| it.amounts());
                let given_back = amounts.iter().sum::<u64>().min(rest.left);
                self.leases.meter.cost(CostFate::GivenBack, given_back);
                self.stranded(rest.left - given_back);
            }
        }
    }

    pub(super) fn stranded(&self, cost: u64) {
        if cost > 0 {
            self.leases.meter.cost(CostFate::Stranded, cost);
        }
    }

    /// A settlement later than this is not needed: the chunk is over after a span.
    fn ttl(&self) -> Duration {
        self.leases.settings.span.saturating_mul(2).max(MIN_TTL)
    }
}

fn borrowed(charges: &[OwnedCharge]) -> PerCharge<Charge<'_>> {
    charges.iter().map(OwnedCharge::as_charge).collect()
}
