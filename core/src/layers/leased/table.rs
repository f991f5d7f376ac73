//! All leases: a table of bounded size.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use smallvec::SmallVec;

use super::chunk::Chunk;
use super::config::Settings;
use super::entry::{Entry, Fetch, Rest};
use super::heat::Heat;
use super::in_flight::{InFlight, Settled};
use super::key;
use super::meter::LeaseMeter;
use crate::hash::spread;
use crate::owned_charge::OwnedCharge;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::hash::{FastRandomState, RandomState};
use crate::sync::{Mutex, MutexGuard};
use crate::{Charges, Decision};

const MAX_SHARDS: usize = 64;

/// Leases in a shard, if there is more than one.
const LEASES_PER_SHARD: usize = 16;

const HEAT_SLOTS_PER_LEASE: usize = 8;

/// The leases of a store, and what they are found by.
#[derive(Debug)]
pub(super) struct Leases {
    pub(super) settings: Settings,
    pub(super) hasher: RandomState,
    pub(super) meter: LeaseMeter,
    pub(super) in_flight: Arc<InFlight>,
    heat: Heat,
    shards: Box<[Mutex<Shard>]>,
    max_per_shard: usize,
    /// The hashes and serial numbers of the leases of each state. Never locked together with a shard.
    by_state: Mutex<HashMap<u64, LeasesOfState, RandomState>>,
    len: AtomicUsize,
    numbers: AtomicU64,
    is_closed: AtomicBool,
}

type LeasesOfState = SmallVec<[(u64, u64); 1]>;

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<u64, Entry, FastRandomState>,
    local: u64,
    passed: u64,
}

/// What the leases say on a call.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// `None` if the call goes to the store.
    pub(super) decision: Option<Decision>,
    pub(super) rest: Option<Rest>,
    pub(super) fetch: Option<Arc<Fetch>>,
    /// Whether the call is leased, and was made within the last span.
    pub(super) is_leased: bool,
}

/// What became of a chunk.
#[derive(Debug)]
pub(super) enum Installed {
    /// It can be used, and replaces another.
    Yes(Option<Rest>),
    /// The lease is gone, as after closing, or the chunk is over: to be given back.
    Unwanted,
}

impl Leases {
    pub(super) fn new(settings: Settings) -> Self {
        let max = settings.max_leases.max(1);
        let shards = (max / LEASES_PER_SHARD).clamp(1, MAX_SHARDS);
        let heat_slots = max.saturating_mul(HEAT_SLOTS_PER_LEASE);
        Self {
            settings,
            hasher: RandomState::default(),
            meter: LeaseMeter::default(),
            in_flight: Arc::new(InFlight::new(max)),
            heat: Heat::new(heat_slots, settings.hot_after, settings.span_micros()),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            max_per_shard: max / shards,
            by_state: Mutex::default(),
            len: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn len(&self) -> usize {
        // Sequentially consistent, as are the pauses: a call that pauses a state finds its lease,
        // or the fetch of this lease finds the pause.
        self.len.load(Ordering::SeqCst)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether there is no chunk here, nor one on its way back to the store.
    pub(super) fn have_no_chunks(&self) -> bool {
        self.len() == 0 && !self.in_flight.is_any_settled(u64::MAX)
    }

    /// Calls that were admitted from a chunk, and acquires that went to the store.
    pub(super) fn calls(&self) -> (u64, u64) {
        let shards = self.shards.iter().map(lock);
        shards.fold((0, 0), |(local, passed), it| (local + it.local, passed + it.passed))
    }

    /// Admits a call from its chunks, if it is leased.
    pub(super) fn admit(&self, hash: u64, charges: Charges<'_>, now: u64) -> Admission {
        let mut shard = self.shard(hash);
        let admission = self.admit_locked(&mut shard, hash, charges, now);
        match admission.decision {
            Some(_) => shard.local += 1,
            None => shard.passed += 1,
        }
        admission
    }

    /// Returns `true` if the call is leased, and would be admitted from its chunks now.
    pub(super) fn would_admit(&self, hash: u64, charges: Charges<'_>, now: u64) -> bool {
        let shard = self.shard(hash);
        let entry = shard.entries.get(&hash).filter(|entry| entry.matches(charges));
        entry.is_some_and(|entry| entry.would_admit(charges, now))
    }

    /// The same for a call that the store has refused.
    pub(super) fn admit_refused(&self, hash: u64, charges: Charges<'_>, now: u64) -> Admission {
        let mut shard = self.shard(hash);
        let admission = self.admit_locked(&mut shard, hash, charges, now);
        if admission.decision.is_some() {
            shard.local += 1;
            shard.passed = shard.passed.saturating_sub(1);
        }
        admission
    }

    fn admit_locked(
        &self,
        shard: &mut Shard,
        hash: u64,
        charges: Charges<'_>,
        now: u64,
    ) -> Admission {
        let mut admission = Admission::default();
        if let Some(entry) = shard.entries.get_mut(&hash).filter(|it| it.matches(charges)) {
            admission.is_leased = now.saturating_sub(entry.used_at) < self.settings.span_micros();
            if !admission.is_leased {
                entry.forget_demand();
            }
            if let Some((decision, rest)) = entry.admit(charges, now) {
                (admission.decision, admission.rest) = (Some(decision), rest);
                if entry.needs_chunk(now)
                    && let Some(remaining) = entry.known_remaining()
                {
                    admission.fetch =
                        self.fetch(hash, entry, charges, remaining.into_iter(), false, now);
                }
            }
        }
        admission
    }

    /// Leases a call that the store has admitted, if it is hot.
    pub(super) fn consider(
        &self,
        hash: u64,
        charges: Charges<'_>,
        decision: &Decision,
        is_leased: bool,
        now: u64,
    ) -> (Option<Arc<Fetch>>, Vec<Rest>) {
        let none = (None, vec![]);
        if decision.is_denied() || decision.degraded().is_some() {
            return none;
        }
        let is_hot = self.heat.record(hash, now);
        if !is_hot && !is_leased
            || self.is_closed()
            || !key::can_be_leased(charges, self.settings.leases_sliding)
        {
            return none;
        }
        let Some(rests) = self.make_entry(hash, charges, now) else { return none };
        let mut shard = self.shard(hash);
        let entry = shard.entries.get_mut(&hash);
        let entry = entry.filter(|it| it.matches(charges) && it.needs_chunk(now));
        let remaining = decision.verdicts().iter().map(|it| it.remaining());
        let fetch = entry.and_then(|it| self.fetch(hash, it, charges, remaining, is_hot, now));
        (fetch, rests)
    }

    fn fetch(
        &self,
        hash: u64,
        entry: &mut Entry,
        charges: Charges<'_>,
        remaining: impl Iterator<Item = u64>,
        is_hot: bool,
        now: u64,
    ) -> Option<Arc<Fetch>> {
        // Under the lock of the shard: a call that pauses the states looks at it afterwards.
        if self.in_flight.is_paused(&entry.states) {
            return None;
        }
        let costs = entry.next_costs(charges, remaining, is_hot, &self.settings, now)?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Some(entry.start_fetch(hash, number, &costs))
    }

    /// Makes sure that there is a lease, and returns what is left of one that it replaces; `None` if there is no room.
    fn make_entry(&self, hash: u64, charges: Charges<'_>, now: u64) -> Option<Vec<Rest>> {
        let span_micros = self.settings.span_micros();
        {
            let shard = self.shard(hash);
            if shard.entries.contains_key(&hash) {
                return Some(vec![]);
            }
            if shard.entries.len() >= self.max_per_shard {
                shard.idle(now, span_micros)?;
            }
        }
        let serial = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (states, in_flight) =
            (key::state_keys(charges, &self.hasher), Arc::clone(&self.in_flight));
        let entry = Entry::new(serial, charges, states, in_flight, now);
        // Before it is in its shard, where any caller may fetch a chunk for it: an operation on one of its states must
        // find that.
        self.index(hash, &entry);
        let mut shard = self.shard(hash);
        let has_room = shard.entries.len() < self.max_per_shard;
        let idle = if has_room { None } else { shard.idle(now, span_micros) };
        let is_there = shard.entries.contains_key(&hash);
        // Under the lock: closing takes out what is in the shards after it has said so.
        let is_closed = self.is_closed();
        if is_there || is_closed || !has_room && idle.is_none() {
            drop(shard);
            self.forget(hash, &entry);
            return is_there.then(Vec::new);
        }
        let replaced = idle.and_then(|idle| shard.entries.remove_entry(&idle));
        let replaced = replaced.map(|(hash, mut entry)| (entry.take_all().collect(), hash, entry));
        shard.entries.insert(hash, entry);
        drop(shard);
        Some(replaced.map_or_else(Vec::new, |(rests, hash, entry)| {
            self.forget(hash, &entry);
            rests
        }))
    }

    /// Adds a lease to the index.
    fn index(&self, hash: u64, entry: &Entry) {
        self.len.fetch_add(1, Ordering::SeqCst);
        let mut by_state = lock(&self.by_state);
        for state in &entry.states {
            by_state.entry(*state).or_default().push((hash, entry.serial));
        }
    }

    /// Removes a lease that is not in its shard from the index.
    fn forget(&self, hash: u64, entry: &Entry) {
        self.len.fetch_sub(1, Ordering::AcqRel);
        let mut by_state = lock(&self.by_state);
        for state in &entry.states {
            if let Some(leases) = by_state.get_mut(state) {
                leases.retain(|it| *it != (hash, entry.serial));
                if leases.is_empty() {
                    by_state.remove(state);
                }
            }
        }
    }

    /// What cancels a hold of which nothing was used.
    pub(super) fn unused(&self, fetch: &Fetch, left: u64) -> Rest {
        let charges = fetch.charges.iter().map(|it| OwnedCharge::new(&it.as_charge().cost(0)));
        let _settlement = self.in_flight.begin_settlement(&fetch.states);
        Rest { number: fetch.number, charges: charges.collect(), left, _settlement }
    }

    /// Installs the chunk of a hold.
    pub(super) fn install(&self, fetch: &Fetch, chunk: Chunk, now: u64) -> Installed {
        let mut shard = self.shard(fetch.hash);
        let entry = shard.entries.get_mut(&fetch.hash).filter(|it| it.serial == fetch.serial);
        match entry {
            Some(entry) if !chunk.is_over(now) => Installed::Yes(entry.install(chunk, now)),
            _ => Installed::Unwanted,
        }
    }

    /// Ends a fetch. The next one begins after `rest` microseconds at the earliest.
    pub(super) fn end_fetch(&self, fetch: &Fetch, now: u64, rest: u64) {
        let mut shard = self.shard(fetch.hash);
        let entry = shard.entries.get_mut(&fetch.hash);
        if let Some(entry) = entry.filter(|it| it.serial == fetch.serial) {
            entry.end_fetch();
            if rest > 0 {
                entry.rest_until(now.saturating_add(rest));
            }
        }
    }

    /// Removes a lease that has no chunk and was not used for a span. Returns the time of the next
    /// try, if the lease was used and no other task tries.
    pub(super) fn retire(&self, fetch: &Fetch, now: u64) -> Option<u64> {
        let mut shard = self.shard(fetch.hash);
        let entry = shard.entries.get_mut(&fetch.hash);
        let entry = entry.filter(|entry| entry.serial == fetch.serial)?;
        let at = entry.watch(now, self.settings.span_micros())?;
        if now < at {
            return Some(at);
        }
        let entry = shard.entries.remove(&fetch.hash)?;
        drop(shard);
        self.forget(fetch.hash, &entry);
        None
    }

    /// Takes out a chunk that is over, and forgets a lease that was hardly used, with its next chunk.
    pub(super) fn reap(&self, fetch: &Fetch, now: u64) -> Vec<Rest> {
        let mut shard = self.shard(fetch.hash);
        let entry = shard.entries.get_mut(&fetch.hash).filter(|it| it.serial == fetch.serial);
        let taken = entry.and_then(|it| it.take_chunk(fetch.number, now, &self.settings));
        let Some((rest, is_cold)) = taken else { return vec![] };
        let mut rests: Vec<_> = rest.into_iter().collect();
        let is_fetching = shard.entries.get(&fetch.hash).is_some_and(Entry::is_fetching);
        if is_cold
            && !is_fetching
            && let Some(mut entry) = shard.entries.remove(&fetch.hash)
        {
            rests.extend(entry.take_all());
            drop(shard);
            self.forget(fetch.hash, &entry);
        }
        rests
    }

    /// Removes all chunks of these states, after `prepare`. The flag is `true` if a chunk is in
    /// flight. Both happen under one lock, so that a chunk that arrives in between is not missed.
    pub(super) fn take_chunks(
        &self,
        states: &[u64],
        prepare: impl Fn(&mut Entry),
    ) -> (Vec<Rest>, bool) {
        let (mut rests, mut is_fetching) = (vec![], false);
        for state in states {
            for (hash, serial) in self.of_state(*state) {
                let mut shard = self.shard(hash);
                let entry = shard.entries.get_mut(&hash);
                if let Some(entry) = entry.filter(|it| it.serial == serial) {
                    prepare(entry);
                    rests.extend(entry.take_all());
                    is_fetching |= entry.is_fetching();
                }
            }
        }
        (rests, is_fetching)
    }

    /// Returns `true` if a chunk of one of these states is here, or in flight in either direction.
    pub(super) fn hold_any_of(&self, states: &[u64]) -> bool {
        let has_chunks = |(hash, serial)| {
            let shard = self.shard(hash);
            let entry = shard.entries.get(&hash).filter(|entry| entry.serial == serial);
            entry.is_some_and(Entry::has_chunks)
        };
        states.iter().any(|state| {
            // In the order of a chunk's life, so that a chunk that moves in between is not missed.
            self.of_state(*state).into_iter().any(has_chunks)
                || self.in_flight.of_state(*state, u64::MAX) == Settled::Soon
        })
    }

    /// What is left of the chunks of a state.
    pub(super) fn left_of(&self, state: u64, now: u64) -> u64 {
        let left = self.of_state(state).into_iter().map(|(hash, serial)| {
            let shard = self.shard(hash);
            let entry = shard.entries.get(&hash).filter(|it| it.serial == serial);
            entry.map_or(0, |it| it.left_of(state, now))
        });
        left.fold(0, u64::saturating_add)
    }

    /// Whether a chunk of a state is on its way.
    pub(super) fn is_fetching(&self, state: u64) -> bool {
        self.of_state(state).into_iter().any(|(hash, serial)| {
            let shard = self.shard(hash);
            let entry = shard.entries.get(&hash).filter(|it| it.serial == serial);
            entry.is_some_and(Entry::is_fetching)
        })
    }

    fn of_state(&self, state: u64) -> LeasesOfState {
        if self.len() == 0 {
            return LeasesOfState::new();
        }
        lock(&self.by_state).get(&state).cloned().unwrap_or_default()
    }

    /// Ends all leases, and returns what is left of them. No further ones are made.
    pub(super) fn close(&self) -> Vec<Rest> {
        self.is_closed.store(true, Ordering::Release);
        let mut rests = vec![];
        for shard in &self.shards {
            let mut shard = lock(shard);
            let mut entries = std::mem::take(&mut shard.entries);
            rests.extend(entries.values_mut().flat_map(Entry::take_all));
            drop(shard);
            entries.iter().for_each(|(hash, entry)| self.forget(*hash, entry));
        }
        rests
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[spread(hash, self.shards.len())])
    }
}

impl Shard {
    /// Returns the lease that was not used for the longest time, if that is a span. A lease with a
    /// chunk in flight stays, so that other operations find this chunk.
    fn idle(&self, now: u64, span_micros: u64) -> Option<u64> {
        let (hash, used_at) = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.is_fetching())
            .map(|(hash, entry)| (*hash, entry.used_at))
            .min_by_key(|it| (it.1, it.0))?;
        (now.saturating_sub(used_at) >= span_micros).then_some(hash)
    }
}

/// A panic leaves nothing half-changed, as nothing that could panic comes between changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
