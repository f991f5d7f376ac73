//! A lease in the table of leases, with the chunks of the lease and the demand for them.

use std::sync::Arc;

use super::chunk::Chunk;
use super::config::Settings;
use super::in_flight::InFlight;
use super::key::LeaseId;
use super::todo::{Fetch, PerCharge, Todo, Unspent};
use crate::layers::generations::Keys;
use crate::{Charge, ChargeBuf, Charges, Decision};

/// The minimum number of calls that a chunk must admit. A smaller chunk costs more than it saves,
/// because the store must execute a hold and a settlement for the chunk.
pub(super) const MIN_CALLS: u64 = 4;

/// The maximum [balance](Entry::balance) of a lease. From this balance, a node can return 16 unused
/// chunks in a row before it stops fetching chunks for a while.
const MAX_BALANCE: u64 = 16 * MIN_CALLS;

/// A lease in the table of leases, for acquires with the same policies, tenants and subjects.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: LeaseId,
    charges: PerCharge<ChargeBuf<'static>>,
    pub(super) states: Keys,
    chunk: Option<Chunk>,
    /// The next chunk of the lease, which a task fetched while `chunk` was in use.
    next: Option<Chunk>,
    /// For each charge, the cost that calls would use in half a span, at the rate at which they
    /// used the last returned chunk. The list is empty if this rate is not known.
    demand: PerCharge<u64>,
    /// A measure of the calls that chunks save. It grows by 1 with each call that a chunk admits,
    /// and shrinks by [`MIN_CALLS`] each time the node returns chunks before another operation.
    /// Below 0, chunks would cost more than they save, so the node stops fetching chunks for a
    /// while.
    balance: u64,
    pub(super) is_fetching: bool,
    /// A task sleeps until this time, and then removes the lease if it was not used.
    watched_until: u64,
    no_fetch_before: u64,
    pub(super) used_at: u64,
    in_flight: Arc<InFlight>,
}

impl Entry {
    pub(super) fn new(
        id: LeaseId,
        charges: Charges<'_>,
        states: Keys,
        in_flight: Arc<InFlight>,
        now: u64,
    ) -> Self {
        Self {
            id,
            charges: charges.iter().map(|charge| ChargeBuf::from(charge).into_owned()).collect(),
            states,
            chunk: None,
            next: None,
            demand: PerCharge::new(),
            balance: 0,
            is_fetching: false,
            watched_until: 0,
            no_fetch_before: 0,
            used_at: now,
            in_flight,
        }
    }

    /// Returns `true` if the lease is for acquires with the policies, tenants and subjects of these
    /// charges. The costs can differ.
    pub(super) fn matches(&self, charges: Charges<'_>) -> bool {
        let is_same = |(leased, charge): (&ChargeBuf<'static>, Charge<'_>)| {
            let leased = leased.as_charge();
            !charge.is_check_only
                && leased.subject == charge.subject
                && leased.tenant == charge.tenant
                && (leased.policy.is_same_object(charge.policy) || leased.policy == charge.policy)
        };
        self.charges.len() == charges.len() && self.charges.iter().zip(charges.iter()).all(is_same)
    }

    /// Records the time of a call. Returns `true` if the previous call was within the last span. If
    /// not, the demand is out of date, and is cleared.
    pub(super) fn touch(&mut self, now: u64, span_micros: u64) -> bool {
        let is_recent = now.saturating_sub(self.used_at) < span_micros;
        if !is_recent {
            self.demand.clear();
        }
        self.used_at = now;
        is_recent
    }

    /// Admits a call from the chunks. If the next chunk replaces the current chunk, the unspent
    /// cost of the current chunk is added to `todo`.
    pub(super) fn admit(
        &mut self,
        charges: Charges<'_>,
        now: u64,
        todo: &mut Todo,
    ) -> Option<Decision> {
        let current = self.chunk.as_mut().and_then(|chunk| chunk.admit(charges, now));
        let decision = match current {
            Some(decision) => decision,
            None => {
                let decision = self.next.as_mut()?.admit(charges, now)?;
                let next = self.next.take();
                let replaced = std::mem::replace(&mut self.chunk, next);
                todo.settle.extend(replaced.and_then(|chunk| self.unspent(&chunk)));
                decision
            }
        };
        self.balance = (self.balance + 1).min(MAX_BALANCE);
        Some(decision)
    }

    pub(super) fn would_admit(&self, charges: Charges<'_>, now: u64) -> bool {
        self.chunks().any(|chunk| chunk.would_admit(charges, now))
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        [&self.chunk, &self.next].into_iter().flatten()
    }

    pub(super) fn has_chunks(&self) -> bool {
        self.is_fetching || self.chunk.is_some() || self.next.is_some()
    }

    /// Returns the time until which the calling task must wait before it removes the lease, if the
    /// lease is then still unused. Returns `None` if another task already waits, or if the lease
    /// has chunks, because then the task of each chunk waits.
    pub(super) fn watch(&mut self, now: u64, span_micros: u64) -> Option<u64> {
        if self.has_chunks() || now < self.watched_until {
            return None;
        }
        self.watched_until = self.used_at.saturating_add(span_micros);
        Some(self.watched_until)
    }

    pub(super) fn needs_chunk(&self, now: u64) -> bool {
        !self.is_fetching
            && self.next.is_none()
            && now >= self.no_fetch_before
            && self.chunk.as_ref().is_none_or(|chunk| chunk.is_half_used() || chunk.is_over(now))
    }

    /// Returns the cost of the next chunk for each charge. `remaining` is the amount that remains
    /// in the store for each charge. Returns `None` if the chunk would admit fewer than
    /// [`MIN_CALLS`] calls like `call`.
    ///
    /// The costs follow the demand. If the demand is too low or not known, a hot call gets a chunk
    /// for a fixed number of calls, and any other call gets no chunk.
    pub(super) fn next_costs(
        &self,
        call: Charges<'_>,
        remaining: impl Iterator<Item = u64>,
        is_hot: bool,
        settings: &Settings,
        now: u64,
    ) -> Option<PerCharge<u64>> {
        let demand = match &self.chunk {
            Some(chunk) => chunk.demand(now, settings.span_micros()),
            None => self.demand.clone(),
        };
        let first_calls = u64::from(settings.hot_after / 2).max(MIN_CALLS);
        let wanted = |(index, charge): (usize, Charge<'_>)| {
            let demand = demand.get(index).copied().unwrap_or(0);
            if demand >= charge.cost.saturating_mul(MIN_CALLS) {
                return Some(demand);
            }
            is_hot.then(|| charge.cost.saturating_mul(first_calls))
        };
        let wanted: PerCharge<u64> = call.iter().enumerate().map(wanted).collect::<Option<_>>()?;
        // Each cost is at most `max_share` of the remaining amount of its policy. All costs shrink
        // by the same factor, `numerator / denominator`, so that the costs keep their ratio.
        let (mut numerator, mut denominator) = (1_u64, 1_u64);
        for (wanted, remaining) in wanted.iter().zip(remaining) {
            let max = settings.max_share.apply(remaining);
            let is_less = u128::from(max) * u128::from(denominator)
                < u128::from(*wanted) * u128::from(numerator);
            if is_less {
                (numerator, denominator) = (max, *wanted);
            }
        }
        let shrunk = |wanted: &u64| {
            let product = u128::from(*wanted) * u128::from(numerator);
            u64::try_from(product / u128::from(denominator)).unwrap_or(0)
        };
        let costs: PerCharge<u64> = wanted.iter().map(shrunk).collect();
        let is_worth_it = |(cost, charge): (&u64, Charge<'_>)| {
            charge.cost > 0 && *cost >= charge.cost.saturating_mul(MIN_CALLS)
        };
        costs.iter().zip(call.iter()).all(is_worth_it).then_some(costs)
    }

    /// Creates the fetch of a chunk with these costs. From then on, the lease counts as fetching.
    pub(super) fn start_fetch(&mut self, number: u64, costs: PerCharge<u64>) -> Arc<Fetch> {
        self.is_fetching = true;
        let with_cost = |(charge, cost): (&ChargeBuf<'static>, u64)| charge.clone().cost(cost);
        let charges = self.charges.iter().zip(costs).map(with_cost).collect();
        Arc::new(Fetch { lease: self.id, number, charges, states: self.states.clone() })
    }

    pub(super) fn known_remaining(&self) -> Option<PerCharge<u64>> {
        self.chunk.as_ref().map(|chunk| chunk.remaining().collect())
    }

    pub(super) fn prevent_fetch_until(&mut self, time: u64) {
        self.no_fetch_before = self.no_fetch_before.max(time);
    }

    pub(super) fn install(&mut self, chunk: Chunk, now: u64) -> Option<Unspent> {
        let is_in_use = |chunk: &Chunk| !chunk.is_over(now) && chunk.unspent().any(|cost| cost > 0);
        let place = match &self.chunk {
            Some(current) if is_in_use(current) => &mut self.next,
            _ => &mut self.chunk,
        };
        let replaced = place.replace(chunk);
        replaced.and_then(|chunk| self.unspent(&chunk))
    }

    pub(super) fn take_chunk(
        &mut self,
        number: u64,
        now: u64,
        settings: &Settings,
    ) -> Option<Chunk> {
        let has_number = |chunk: &mut Chunk| chunk.fetch.number == number;
        let chunk = self.chunk.take_if(has_number).or_else(|| self.next.take_if(has_number))?;
        self.demand = chunk.demand(now, settings.span_micros());
        Some(chunk)
    }

    /// Prepares the lease for the return of its chunks before another operation. Stores the demand
    /// for the returned chunk, which determines the size of the next chunk. If such operations are
    /// so frequent that chunks save no calls, prevents fetches for a quarter of a span.
    pub(super) fn interrupt(&mut self, now: u64, settings: &Settings) {
        let span_micros = settings.span_micros();
        let Some(chunk) = &self.chunk else { return };
        self.demand = if chunk.calls < MIN_CALLS {
            chunk.granted().collect()
        } else {
            chunk.demand(now, span_micros)
        };
        match self.balance.checked_sub(MIN_CALLS) {
            Some(balance) => self.balance = balance,
            None => self.prevent_fetch_until(now.saturating_add(span_micros / 4)),
        }
    }

    pub(super) fn take_chunks(&mut self, todo: &mut Todo) {
        for chunk in [self.chunk.take(), self.next.take()].into_iter().flatten() {
            todo.settle.extend(self.unspent(&chunk));
        }
    }

    /// Returns the unspent cost that the usable chunks of this lease contain for one state.
    pub(super) fn unspent_of(&self, state: u64, now: u64) -> u64 {
        let chunks = self.chunks().filter(|chunk| !chunk.is_over(now));
        let unspent = chunks.flat_map(|chunk| chunk.unspent().zip(&self.states));
        let unspent = unspent.filter(|(_, key)| **key == state).map(|(unspent, _)| unspent);
        unspent.fold(0, u64::saturating_add)
    }

    /// Returns the settlement that returns the unspent cost of a chunk, or `None` if the chunk is
    /// used up.
    pub(super) fn unspent(&self, chunk: &Chunk) -> Option<Unspent> {
        let cost = chunk.unspent().fold(0, u64::saturating_add);
        (cost > 0).then(|| Unspent::new(&self.in_flight, &chunk.fetch, chunk.used(), cost))
    }
}
