//! The table of all leases, with a bounded size.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use smallvec::SmallVec;

use super::chunk::{Chunk, max_remaining};
use super::config::Settings;
use super::entry::{Entry, MIN_CALLS};
use super::heat::Heat;
use super::in_flight::InFlight;
use super::key::{LeaseId, call_hash, can_be_leased, state_key, state_keys};
use super::meter::LeaseMeter;
use super::todo::{Fetch, Todo, Unspent};
use crate::hash::spread;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::hash::{FastRandomState, RandomState};
use crate::sync::{Mutex, MutexGuard};
use crate::{Call, Charges, Clock, Decision};

const MAX_SHARDS: usize = 64;

/// The number of leases per part of the table (shard), if there are at least two parts.
const LEASES_PER_SHARD: usize = 16;

const HEAT_SLOTS_PER_LEASE: usize = 8;

/// All leases of a node, found by call and by state. The methods change the leases, and return the
/// [work](Todo) in the store that the change requires. They never wait for the store.
#[derive(Debug)]
pub(super) struct LeaseTable {
    pub(super) settings: Settings,
    pub(super) hasher: RandomState,
    pub(super) meter: LeaseMeter,
    pub(super) in_flight: Arc<InFlight>,
    heat: Heat,
    shards: Box<[Mutex<Shard>]>,
    max_per_shard: usize,
    /// The ids of the leases of each state. No thread locks this index and a part of the table
    /// (shard) at the same time.
    by_state: Mutex<HashMap<u64, LeaseIds, RandomState>>,
    len: AtomicUsize,
    numbers: AtomicU64,
    is_closed: AtomicBool,
}

type LeaseIds = SmallVec<[LeaseId; 1]>;

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<u64, Entry, FastRandomState>,
    local: u64,
    passed: u64,
}

/// An acquire that is sent to the store. If the store admits it, a lease for such acquires possibly
/// begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    hash: u64,
    /// Whether the acquire has a lease whose previous call was within the last span.
    is_leased: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct StoreCall<'a> {
    pub(super) call: Call<'a>,
    pub(super) candidate: Option<Candidate>,
}

impl LeaseTable {
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
        // The number of leases and the counts of pauses are read with sequential consistency. So
        // either a call that pauses a state finds the lease of the state, or the lease finds the
        // pause before it fetches a chunk.
        self.len.load(Ordering::SeqCst)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn has_no_chunks(&self) -> bool {
        self.len() == 0 && !self.in_flight.is_any_settling()
    }

    pub(super) fn local(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).local).sum()
    }

    pub(super) fn passed(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).passed).sum()
    }

    /// Returns the decision if a chunk admits the acquire. If not, returns the [`Candidate`] for
    /// the call to the store.
    #[inline]
    pub(super) fn admit(
        &self,
        charges: Charges<'_>,
        now: u64,
        todo: &mut Todo,
    ) -> Result<Decision, Candidate> {
        let hash = call_hash(charges, &self.hasher);
        let mut shard = self.shard(hash);
        let answer = self.admit_in(&mut shard, hash, charges, now, todo);
        match answer {
            Ok(_) => shard.local += 1,
            Err(_) => shard.passed += 1,
        }
        drop(shard);
        self.meter.call(answer.is_ok());
        answer
    }

    /// Admits an acquire from the chunks of its lease, after the store has refused the acquire. The
    /// acquire then counts as admitted from a chunk, and no longer as sent to the store.
    pub(super) fn admit_refused(
        &self,
        candidate: Candidate,
        charges: Charges<'_>,
        now: u64,
        todo: &mut Todo,
    ) -> Option<Decision> {
        let mut shard = self.shard(candidate.hash);
        let decision = self.admit_in(&mut shard, candidate.hash, charges, now, todo).ok()?;
        shard.local += 1;
        shard.passed = shard.passed.saturating_sub(1);
        Some(decision)
    }

    fn admit_in(
        &self,
        shard: &mut Shard,
        hash: u64,
        charges: Charges<'_>,
        now: u64,
        todo: &mut Todo,
    ) -> Result<Decision, Candidate> {
        let entry = shard.entries.get_mut(&hash).filter(|entry| entry.matches(charges));
        let entry = entry.ok_or(Candidate { hash, is_leased: false })?;
        let is_leased = entry.touch(now, self.settings.span_micros());
        let decision = entry.admit(charges, now, todo).ok_or(Candidate { hash, is_leased })?;
        if entry.needs_chunk(now)
            && let Some(remaining) = entry.known_remaining()
        {
            todo.fetch = self.fetch(entry, charges, remaining.into_iter(), false, now);
        }
        Ok(decision)
    }

    pub(super) fn would_admit(&self, charges: Charges<'_>, now: u64) -> bool {
        let hash = call_hash(charges, &self.hasher);
        let shard = self.shard(hash);
        let entry = shard.entries.get(&hash).filter(|entry| entry.matches(charges));
        entry.is_some_and(|entry| entry.would_admit(charges, now))
    }

    pub(super) fn candidate(&self, charges: Charges<'_>) -> Candidate {
        Candidate { hash: call_hash(charges, &self.hasher), is_leased: false }
    }

    /// Records an acquire that the store has decided. An acquire that was admitted and is hot
    /// begins a lease.
    pub(super) fn record(
        &self,
        candidate: Candidate,
        charges: Charges<'_>,
        decision: &Decision,
        now: u64,
    ) -> Todo {
        let mut todo = Todo::default();
        if decision.is_denied() || decision.degraded().is_some() {
            return todo;
        }
        let Candidate { hash, is_leased } = candidate;
        let is_hot = self.heat.record(hash, now);
        if !is_hot && !is_leased
            || self.is_closed()
            || !can_be_leased(charges, self.settings.leases_sliding)
            || !self.ensure_lease(hash, charges, now, &mut todo)
        {
            return todo;
        }
        let mut shard = self.shard(hash);
        let entry = shard.entries.get_mut(&hash);
        if let Some(entry) = entry.filter(|entry| entry.matches(charges) && entry.needs_chunk(now))
        {
            let remaining = decision.verdicts().iter().map(|verdict| verdict.remaining());
            todo.fetch = self.fetch(entry, charges, remaining, is_hot, now);
        }
        todo
    }

    fn fetch(
        &self,
        entry: &mut Entry,
        charges: Charges<'_>,
        remaining: impl Iterator<Item = u64>,
        is_hot: bool,
        now: u64,
    ) -> Option<Arc<Fetch>> {
        // This method checks for pauses under the lock of the lease's part of the table. A call
        // that pauses states first counts the pause, and then looks for fetches under the same
        // lock. So either this check finds the pause, or the call finds the fetch.
        if self.in_flight.is_paused(&entry.states) {
            return None;
        }
        let costs = entry.next_costs(charges, remaining, is_hot, &self.settings, now)?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Some(entry.start_fetch(number, costs))
    }

    /// Adds a lease for these charges if the table has none. Returns `true` if the table then has a
    /// lease for them. If the table is full, the new lease replaces an unused lease, and the chunks
    /// of the unused lease are added to `todo`.
    fn ensure_lease(&self, hash: u64, charges: Charges<'_>, now: u64, todo: &mut Todo) -> bool {
        let span_micros = self.settings.span_micros();
        {
            let shard = self.shard(hash);
            if shard.entries.contains_key(&hash) {
                return true;
            }
            if shard.entries.len() >= self.max_per_shard && shard.idle(now, span_micros).is_none() {
                return false;
            }
        }
        let id = LeaseId { hash, serial: self.numbers.fetch_add(1, Ordering::Relaxed) };
        let (states, in_flight) = (state_keys(charges, &self.hasher), Arc::clone(&self.in_flight));
        let entry = Entry::new(id, charges, states, in_flight, now);
        // The lease is added to the index `by_state` before it is added to the table. As soon as it
        // is in the table, a caller can fetch a chunk for it. Operations on a state of the lease
        // find this chunk by the index.
        self.add_to_index(&entry);
        let mut shard = self.shard(hash);
        let has_room = shard.entries.len() < self.max_per_shard;
        let idle = if has_room { None } else { shard.idle(now, span_micros) };
        let exists = shard.entries.contains_key(&hash);
        // `close` sets `is_closed` before it takes this lock to remove the leases. The flag is read
        // here under the same lock, so no lease is added after `close` has removed the leases.
        let is_closed = self.is_closed();
        if exists || is_closed || !has_room && idle.is_none() {
            drop(shard);
            self.remove_from_index(&entry);
            return exists;
        }
        let mut replaced = idle.and_then(|idle| shard.entries.remove(&idle));
        if let Some(replaced) = &mut replaced {
            replaced.take_chunks(todo);
        }
        shard.entries.insert(hash, entry);
        drop(shard);
        if let Some(replaced) = replaced {
            self.remove_from_index(&replaced);
        }
        true
    }

    fn add_to_index(&self, entry: &Entry) {
        self.len.fetch_add(1, Ordering::SeqCst);
        let mut by_state = lock(&self.by_state);
        for state in &entry.states {
            by_state.entry(*state).or_default().push(entry.id);
        }
    }

    /// Removes a lease from the index `by_state`, after the caller has removed the lease from the
    /// table.
    fn remove_from_index(&self, entry: &Entry) {
        self.len.fetch_sub(1, Ordering::AcqRel);
        let mut by_state = lock(&self.by_state);
        for state in &entry.states {
            if let Some(leases) = by_state.get_mut(state) {
                leases.retain(|id| *id != entry.id);
                if leases.is_empty() {
                    by_state.remove(state);
                }
            }
        }
    }

    /// Returns the settlement that cancels an unused hold. `cost` is the granted cost, or 0 if it
    /// is not known.
    pub(super) fn unused(&self, fetch: &Arc<Fetch>, cost: u64) -> Unspent {
        Unspent::new(&self.in_flight, fetch, std::iter::repeat_n(0, fetch.charges.len()), cost)
    }

    /// Adds a chunk to the lease that has fetched it. If the lease was removed or the chunk is
    /// over, adds the settlement of the whole chunk to `todo` instead. Returns `true` if the chunk
    /// can be used.
    pub(super) fn install(&self, chunk: Chunk, now: u64, todo: &mut Todo) -> bool {
        let lease = chunk.fetch.lease;
        if !chunk.is_over(now)
            && let Some(entry) = self.shard(lease.hash).entry(lease)
        {
            todo.settle.extend(entry.install(chunk, now));
            return true;
        }
        todo.settle.push(self.unused(&chunk.fetch, chunk.unspent().sum()));
        false
    }

    pub(super) fn end_fetch(&self, fetch: &Fetch, no_fetch_before: u64) {
        if let Some(entry) = self.shard(fetch.lease.hash).entry(fetch.lease) {
            entry.is_fetching = false;
            entry.prevent_fetch_until(no_fetch_before);
        }
    }

    /// Removes a lease that has no chunk and was not used for a span. If the lease was used within
    /// the last span, returns the time at which the task must call this method again. Returns
    /// `None` if no further call is needed.
    pub(super) fn retire(&self, lease: LeaseId, now: u64) -> Option<u64> {
        let mut shard = self.shard(lease.hash);
        let at = shard.entry(lease)?.watch(now, self.settings.span_micros())?;
        if now < at {
            return Some(at);
        }
        let entry = shard.entries.remove(&lease.hash)?;
        drop(shard);
        self.remove_from_index(&entry);
        None
    }

    /// Removes a chunk that is over from its lease. If the chunk has admitted few calls, also
    /// removes the lease, with its next chunk.
    pub(super) fn reap(&self, fetch: &Fetch, now: u64) -> Todo {
        let mut todo = Todo::default();
        let mut shard = self.shard(fetch.lease.hash);
        let Some(entry) = shard.entry(fetch.lease) else { return todo };
        let chunk = entry.take_chunk(fetch.number, now, &self.settings);
        let Some(chunk) = chunk else { return todo };
        todo.settle.extend(entry.unspent(&chunk));
        if chunk.calls < MIN_CALLS
            && !entry.is_fetching
            && let Some(mut entry) = shard.entries.remove(&fetch.lease.hash)
        {
            entry.take_chunks(&mut todo);
            drop(shard);
            self.remove_from_index(&entry);
        }
        todo
    }

    pub(super) fn visit_leases(&self, state: u64, mut visit: impl FnMut(&mut Entry)) {
        for id in self.leases_of(state) {
            if let Some(entry) = self.shard(id.hash).entry(id) {
                visit(entry);
            }
        }
    }

    fn leases_of(&self, state: u64) -> LeaseIds {
        if self.len() == 0 {
            return LeaseIds::new();
        }
        lock(&self.by_state).get(&state).cloned().unwrap_or_default()
    }

    /// Returns `true` if this node has, fetches or returns a chunk of one of these states.
    pub(super) fn has_chunks_of(&self, states: &[u64]) -> bool {
        states.iter().any(|state| {
            // A chunk is first in its lease, and then in flight to the store. The two checks follow
            // this order, so that they also find a chunk that leaves its lease between them.
            let mut has_chunks = false;
            self.visit_leases(*state, |entry| has_chunks |= entry.has_chunks());
            has_chunks || self.in_flight.is_settling(*state)
        })
    }

    /// Adds the unspent costs in the chunks of this node to the remaining amounts in the answer to
    /// a peek.
    pub(super) fn add_unspent(&self, peek: &Call<'_>, decision: &mut Decision, clock: &impl Clock) {
        if self.len() == 0 || decision.degraded().is_some() {
            return;
        }
        let now = clock.now().as_micros();
        for (verdict, charge) in decision.verdicts_mut().iter_mut().zip(peek.charges.iter()) {
            let (state, mut unspent) = (state_key(&charge, &self.hasher), 0_u64);
            self.visit_leases(state, |entry| {
                unspent = unspent.saturating_add(entry.unspent_of(state, now));
            });
            let cost = peek.charges.total_cost_for(&charge);
            let max = max_remaining(charge.policy, verdict.limit());
            *verdict = verdict.with_more_remaining(unspent, max, cost);
        }
    }

    /// Removes all leases, and returns the settlements of their chunks. After that, no lease is
    /// added.
    pub(super) fn close(&self) -> Todo {
        self.is_closed.store(true, Ordering::Release);
        let mut todo = Todo::default();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let mut entries = std::mem::take(&mut shard.entries);
            entries.values_mut().for_each(|entry| entry.take_chunks(&mut todo));
            drop(shard);
            entries.values().for_each(|entry| self.remove_from_index(entry));
        }
        todo
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[spread(hash, self.shards.len())])
    }
}

impl Shard {
    fn entry(&mut self, id: LeaseId) -> Option<&mut Entry> {
        self.entries.get_mut(&id.hash).filter(|entry| entry.id == id)
    }

    /// Returns the hash of the lease that was not used for the longest time, if that is at least a
    /// span. A lease with a fetch in flight is skipped, because other operations must find the
    /// fetched chunk.
    fn idle(&self, now: u64, span_micros: u64) -> Option<u64> {
        let unfetched = self.entries.iter().filter(|(_, entry)| !entry.is_fetching);
        let (used_at, hash) = unfetched.map(|(hash, entry)| (entry.used_at, *hash)).min()?;
        (now.saturating_sub(used_at) >= span_micros).then_some(hash)
    }
}

/// Locks a mutex, even if another thread has panicked while it held the lock. The data is still
/// consistent, because no code that can panic runs between two changes that belong together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
