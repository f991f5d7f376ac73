//! The lease of a call: its chunks, and how large the next one is.

use std::sync::Arc;

use super::chunk::{Chunk, PerCharge};
use super::config::Settings;
use super::in_flight::{InFlight, Settlement};
use crate::layers::generations::Keys;
use crate::{Charge, ChargeBuf, Charges, Decision};

/// A chunk of fewer calls costs more than it saves: it takes a hold and a settlement.
const MIN_CALLS: u64 = 4;

/// The maximum [balance](Entry::balance). It allows 16 returns of unused chunks, one after another.
const MAX_BALANCE: u64 = 16 * MIN_CALLS;

/// A leased call.
#[derive(Debug)]
pub(super) struct Entry {
    /// Unique among all entries, of which several may be of one call, one after another.
    pub(super) serial: u64,
    charges: PerCharge<ChargeBuf<'static>>,
    pub(super) states: Keys,
    chunk: Option<Chunk>,
    /// Fetched ahead.
    next: Option<Chunk>,
    /// What would be used of each charge in half a span, of a chunk that was given back; empty if that is not known.
    demand: PerCharge<u64>,
    /// The number of calls that chunks have admitted, less [`MIN_CALLS`] for each return of the
    /// chunks before another operation. At 0, chunks cost more than they save.
    balance: u64,
    is_fetching: bool,
    /// The time until which a task waits to remove the lease, if it is not used.
    watched_until: u64,
    /// No chunk is fetched before this time.
    rests_until: u64,
    /// When a call was last made.
    pub(super) used_at: u64,
    in_flight: Arc<InFlight>,
}

/// A hold to be made.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) hash: u64,
    pub(super) serial: u64,
    pub(super) number: u64,
    /// With the costs to hold.
    pub(super) charges: PerCharge<ChargeBuf<'static>>,
    pub(super) states: Keys,
}

/// A chunk that is not used any more, to be settled.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) number: u64,
    /// With the costs that were used.
    pub(super) charges: Vec<ChargeBuf<'static>>,
    /// The sum of what is left.
    pub(super) left: u64,
    /// Until it is dropped, refused callers wait for it.
    pub(super) _settlement: Settlement,
}

impl Entry {
    pub(super) fn new(
        serial: u64,
        charges: Charges<'_>,
        states: Keys,
        in_flight: Arc<InFlight>,
        now: u64,
    ) -> Self {
        Self {
            serial,
            charges: charges.iter().map(|charge| ChargeBuf::from(charge).into_owned()).collect(),
            states,
            chunk: None,
            next: None,
            demand: PerCharge::new(),
            balance: 0,
            is_fetching: false,
            watched_until: 0,
            rests_until: 0,
            used_at: now,
            in_flight,
        }
    }

    /// Whether it is of these charges, at any costs.
    pub(super) fn matches(&self, charges: Charges<'_>) -> bool {
        let is_same = |(held, charge): (&ChargeBuf<'_>, Charge<'_>)| {
            let held = held.as_charge();
            !charge.is_check_only
                && held.subject == charge.subject
                && held.tenant == charge.tenant
                && (held.policy.is_same_object(charge.policy) || held.policy == charge.policy)
        };
        self.charges.len() == charges.len() && self.charges.iter().zip(charges.iter()).all(is_same)
    }

    /// Admits a call from the chunks. One that was replaced is returned, if anything of it is left.
    pub(super) fn admit(
        &mut self,
        charges: Charges<'_>,
        now: u64,
    ) -> Option<(Decision, Option<Rest>)> {
        self.used_at = now;
        if let Some(decision) = self.chunk.as_mut().and_then(|it| it.take(charges, now)) {
            self.balance = (self.balance + 1).min(MAX_BALANCE);
            return Some((decision, None));
        }
        let decision = self.next.as_mut()?.take(charges, now)?;
        self.balance = (self.balance + 1).min(MAX_BALANCE);
        let next = self.next.take();
        let rest = std::mem::replace(&mut self.chunk, next).and_then(|it| self.rest(&it));
        Some((decision, rest))
    }

    /// Returns `true` if [`admit`](Self::admit) would admit the call.
    pub(super) fn would_admit(&self, charges: Charges<'_>, now: u64) -> bool {
        [&self.chunk, &self.next].into_iter().flatten().any(|chunk| chunk.has(charges, now))
    }

    /// Forgets the demand, as no call was made for a while.
    pub(super) fn forget_demand(&mut self) {
        self.demand.clear();
    }

    /// Whether a chunk is on its way.
    pub(super) fn is_fetching(&self) -> bool {
        self.is_fetching
    }

    /// Returns `true` if there is a chunk, or one is in flight.
    pub(super) fn has_chunks(&self) -> bool {
        self.is_fetching || self.chunk.is_some() || self.next.is_some()
    }

    /// Returns the time at which the lease is removed unless it is used before. Returns `None` if
    /// another task waits for that, or if the lease has chunks, whose tasks will wait.
    pub(super) fn watch(&mut self, now: u64, span_micros: u64) -> Option<u64> {
        if self.has_chunks() || now < self.watched_until {
            return None;
        }
        self.watched_until = self.used_at.saturating_add(span_micros);
        Some(self.watched_until)
    }

    /// Whether the next chunk should be fetched now.
    pub(super) fn needs_chunk(&self, now: u64) -> bool {
        !self.is_fetching
            && self.next.is_none()
            && now >= self.rests_until
            && self.chunk.as_ref().is_none_or(|it| it.is_half_used() || it.is_over(now))
    }

    /// The costs of the next chunk, while so much remains of each charge, and if several calls like this one are to be
    /// expected in it: by the last chunk, or because the call is hot.
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
        // All charges shrink by the same factor, that of the scarcest.
        let (mut part, mut of) = (1_u64, 1_u64);
        for (wanted, remaining) in wanted.iter().zip(remaining) {
            let max = settings.max_share.apply(remaining);
            if u128::from(max) * u128::from(of) < u128::from(*wanted) * u128::from(part) {
                (part, of) = (max, *wanted);
            }
        }
        let shrunk = |wanted: u64| {
            u64::try_from(u128::from(wanted) * u128::from(part) / u128::from(of)).unwrap_or(0)
        };
        let costs: PerCharge<u64> = wanted.iter().map(|wanted| shrunk(*wanted)).collect();
        let is_worth_it = |(costs, charge): (&u64, Charge<'_>)| {
            charge.cost > 0 && *costs >= charge.cost.saturating_mul(MIN_CALLS)
        };
        costs.iter().zip(call.iter()).all(is_worth_it).then_some(costs)
    }

    /// The hold of these costs, which is on its way from now on.
    pub(super) fn start_fetch(&mut self, hash: u64, number: u64, costs: &[u64]) -> Arc<Fetch> {
        self.is_fetching = true;
        let with_cost = |(charge, cost): (&ChargeBuf<'static>, &u64)| charge.clone().cost(*cost);
        let charges = self.charges.iter().zip(costs).map(with_cost).collect();
        let states = self.states.clone();
        Arc::new(Fetch { hash, serial: self.serial, number, charges, states })
    }

    /// What remained in the store when the last chunk was granted.
    pub(super) fn known_remaining(&self) -> Option<PerCharge<u64>> {
        self.chunk.as_ref().map(|chunk| chunk.remaining().collect())
    }

    pub(super) fn end_fetch(&mut self) {
        self.is_fetching = false;
    }

    pub(super) fn rest_until(&mut self, time: u64) {
        self.rests_until = self.rests_until.max(time);
    }

    /// Adds a chunk, and returns the one that it replaces.
    pub(super) fn install(&mut self, chunk: Chunk, now: u64) -> Option<Rest> {
        let is_used_up = |it: &Chunk| it.is_over(now) || it.left().all(|left| left == 0);
        let place = match &self.chunk {
            Some(it) if !is_used_up(it) => &mut self.next,
            _ => &mut self.chunk,
        };
        let replaced = place.replace(chunk);
        replaced.and_then(|it| self.rest(&it))
    }

    /// Takes the chunk of this number out. The flag is whether it was hardly used.
    pub(super) fn take_chunk(
        &mut self,
        number: u64,
        now: u64,
        settings: &Settings,
    ) -> Option<(Option<Rest>, bool)> {
        let is_it = |it: &mut Chunk| it.number == number;
        let chunk = self.chunk.take_if(is_it).or_else(|| self.next.take_if(is_it))?;
        self.demand = chunk.demand(now, settings.span_micros());
        Some((self.rest(&chunk), chunk.calls < MIN_CALLS))
    }

    /// Prepares for the return of the chunks before an operation. The next chunk follows the same
    /// demand, unless such operations are so frequent that chunks cost more than they save.
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
            None => self.rest_until(now.saturating_add(span_micros / 4)),
        }
    }

    /// Takes all chunks out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Rest> + use<> {
        let chunks = [self.chunk.take(), self.next.take()];
        let rests = chunks.map(|chunk| chunk.and_then(|it| self.rest(&it)));
        rests.into_iter().flatten()
    }

    /// What is left of the chunks of a state.
    pub(super) fn left_of(&self, state: u64, now: u64) -> u64 {
        let chunks = [&self.chunk, &self.next].into_iter().flatten();
        let left = chunks.filter(|it| !it.is_over(now)).flat_map(|it| it.left().zip(&self.states));
        left.filter(|(_, key)| **key == state).map(|(left, _)| left).fold(0, u64::saturating_add)
    }

    /// What there is to settle of a chunk; `None` if it is used up.
    fn rest(&self, chunk: &Chunk) -> Option<Rest> {
        let left = chunk.left().fold(0, u64::saturating_add);
        let used = |(charge, used): (&ChargeBuf<'static>, u64)| charge.clone().cost(used);
        let charges = || self.charges.iter().zip(chunk.used()).map(used).collect();
        (left > 0).then(|| Rest {
            number: chunk.number,
            charges: charges(),
            left,
            _settlement: self.in_flight.begin_settlement(&self.states),
        })
    }
}
