mod multi;

use std::fmt;
use std::hint;
use std::thread;
use std::time::Duration;

use smallvec::SmallVec;
use spin::mutex::{SpinMutex, SpinMutexGuard};
use tidegate_core::call::MAX_SUBJECT;
use tidegate_core::engine::{self, FewNumbers, Record, Taken};
use tidegate_core::policy::Rule;
use tidegate_core::{
    Answer, Call, Charge, Charges, Clock, Decision, Error, ErrorKind, Operation, Policy, Store,
    SystemClock, Timestamp,
};

use crate::interner::PolicyInterner;
use crate::key::ShortKey;
use crate::locked_call::{self, LockedCall};
use crate::shard::{MissReason, Shard, Shared};
use crate::slot::{AnyKey, Slot};

/// What happens when a new state does not fit, and all that are there still matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// Evicts the state that would have recovered soonest, of those in the new one's shard. Newcomers
    /// recover soon, so a flood of them evicts other newcomers. If what is full is the bound on
    /// [bytes outside of the tables](MemoryStoreBuilder::max_spill_bytes) and the shard has no such
    /// state, those of all other shards are evicted, the soonest first.
    #[default]
    EvictEarliestExpiry,
    /// The new state is refused with [`ErrorKind::OutOfMemory`]; the caller decides.
    Refuse,
}

/// States in this process's memory, in shards that are locked one by one.
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    shards: Box<[ShardCell]>,
    shared: Shared,
}

/// One time for several calls.
#[derive(Debug)]
struct BatchClock(Timestamp);

impl Clock for BatchClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// A shard on cache lines of its own, so that threads at work in two shards do not disturb each other.
#[repr(align(128))]
struct ShardCell(SpinMutex<Shard>);

pub(crate) type Guard<'a> = SpinMutexGuard<'a, Shard>;

/// A decision that was made out of the way. Were it handed back alone, it would be written to where the
/// caller makes its own, and so that would have to be made too, whether or not anybody looks at it.
struct OutOfLine {
    decision: Result<Decision, Error>,
    _time: Timestamp,
}

/// Where a record is, or would be, and what is known of it.
struct Lookup<'a> {
    shard: Guard<'a>,
    hash: u64,
    reason: MissReason,
}

impl MemoryStore {
    /// A store with the machine's clock and the usual bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A store with bounds and a clock of one's own.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: SystemClock::new(),
            max_keys: 1 << 20,
            max_spill: 256 << 20,
            when_full: WhenFull::default(),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// How a [`MemoryStore`] shall be.
#[derive(Debug, Clone)]
#[must_use]
pub struct MemoryStoreBuilder<C = SystemClock> {
    clock: C,
    max_keys: usize,
    max_spill: usize,
    when_full: WhenFull,
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// The clock that counts. Default: [`SystemClock`].
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        let Self { max_keys, max_spill, when_full, .. } = self;
        MemoryStoreBuilder { clock, max_keys, max_spill, when_full }
    }

    /// The most states that are kept at a time, at least 1. Default: 1,048,576.
    ///
    /// The states are spread evenly over shards, each of which has its part of the bound; a shard
    /// may be full a little before the store is.
    pub fn max_keys(self, keys: usize) -> Self {
        Self { max_keys: keys.max(1), ..self }
    }

    /// The most bytes that are kept outside of the tables, in the logs of `sliding-log` policies, for
    /// subjects that are shut out or have taken 2^32 and more of a sliding counter, and in subjects
    /// longer than 20 bytes (19 with a tenant, which counts too). Default: 256 MiB.
    pub fn max_spill_bytes(self, bytes: usize) -> Self {
        Self { max_spill: bytes, ..self }
    }

    /// What happens when all states still matter and a new one does not fit.
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// The store. It takes memory only as states come.
    #[must_use]
    pub fn build(self) -> MemoryStore<C> {
        let count = (self.max_keys / KEYS_PER_SHARD).next_power_of_two();
        let max_len = self.max_keys / count;
        MemoryStore {
            clock: self.clock,
            shards: (0..count).map(|_| ShardCell(SpinMutex::new(Shard::new(max_len)))).collect(),
            shared: Shared::new(self.max_spill, self.when_full),
        }
    }
}

/// So few that a growing table moves them within a fraction of a millisecond.
const KEYS_PER_SHARD: usize = 4096;

impl<C: Clock> MemoryStore<C> {
    /// Carries out one call, without any async.
    ///
    /// This becomes a part of whatever calls it, in 6 kB: where many places do, let them call a function
    /// of yours that does.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`] in general; of the store's own, [`ErrorKind::OutOfMemory`].
    #[inline(always)]
    pub fn decide_now(&self, call: &Call<'_>) -> Result<Decision, Error> {
        self.decide_by(call, &self.clock, |decision| decision)
    }

    /// How many states are kept, the recovered included that have not gone yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.each_shard(Shard::len).sum()
    }

    /// Whether no state is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the store takes now, its tables' free slots included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.fixed_bytes() + self.each_shard(Shard::bytes).sum::<usize>() + self.shared.heap.used()
    }

    /// Bytes that the store never exceeds. (While a shard grows, its old table is there too for a
    /// moment: at most the shard's part of this, for each thread that is just growing one.)
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        let shards = self.each_shard(Shard::max_bytes).sum::<usize>();
        self.fixed_bytes() + shards + self.shared.heap.max()
    }

    /// Drops all states that have recovered, in one go. There is no need to call this.
    pub fn sweep(&self) {
        let now = self.clock.now().as_micros();
        for shard in &self.shards {
            lock(shard).sweep_all(now, &self.shared);
        }
    }

    /// Calls `see` with the tenant, the subject and the record of each state, in no order. A shard
    /// is locked while its states are seen, so `see` must not call the store.
    pub fn for_each(&self, mut see: impl FnMut(&[u8], &[u8], &Record)) {
        for shard in &self.shards {
            for (slot, record) in lock(shard).records() {
                slot.with_key(|tenant, subject| see(tenant, subject, &record));
            }
        }
    }

    /// Most calls acquire one charge, and take the shortest way: nothing but lengths could be wrong
    /// with them.
    ///
    /// This becomes a part of the caller, down to what decides by the algorithms that most policies
    /// have. Then neither the call nor the decision is ever made, but for what the caller looks at. (It
    /// takes 1.5 kB a call for each of them, so those that are asked for less often are a call away.)
    /// Hence what is called from here takes a charge in parts, and is called in the last place: so
    /// nothing has to be kept meanwhile.
    #[inline(always)]
    fn decide_by<T>(
        &self,
        call: &Call<'_>,
        clock: &impl Clock,
        answer: impl Fn(Result<Decision, Error>) -> T,
    ) -> T {
        let (charge, others) = match (call.operation, &call.charges) {
            (Operation::Acquire, Charges::Each([charge])) => (charge, &[][..]),
            (Operation::Acquire, Charges::Alike { first, others }) => (first, *others),
            _ => return answer(self.decide_full(call, clock.now())),
        };
        let Charge { policy, tenant, subject, cost } = *charge;
        let is_plain = tenant.is_empty() && others.is_empty();
        match policy.rule() {
            Rule::TokenBucket(rule) if is_plain => {
                self.decide_fast(policy, rule, subject, cost, clock, answer)
            }
            Rule::SlidingCounter(rule) if is_plain => {
                self.decide_fast(policy, rule, subject, cost, clock, answer)
            }
            Rule::FixedWindow(rule) if is_plain => {
                self.decide_fast(policy, rule, subject, cost, clock, answer)
            }
            _ => {
                let (policies, time) = ((policy, others), clock.now());
                let taken = if others.is_empty() {
                    self.acquire_by_rule(policy, tenant, subject, cost, time)
                } else {
                    Err(None)
                };
                match taken {
                    Ok(taken) => answer(Ok(Decision::one(taken.verdict(policy)))),
                    Err(lookup) => answer(
                        self.decide_out_of_line(policies, tenant, subject, cost, time, lookup)
                            .decision,
                    ),
                }
            }
        }
    }

    /// One charge without a tenant, by a rule that is known where this is called.
    #[inline(always)]
    fn decide_fast<A: FewNumbers, T>(
        &self,
        policy: &Policy,
        rule: &A,
        subject: &[u8],
        cost: u64,
        clock: &impl Clock,
        answer: impl Fn(Result<Decision, Error>) -> T,
    ) -> T {
        let charge = Charge { policy, tenant: &[], subject, cost };
        let place = self.place(&charge);
        // Here, between hash and lock, what it takes is least felt.
        let time = clock.now();
        match self.acquire(&charge, rule, place, time) {
            Ok(taken) => answer(Ok(Decision::one(taken.verdict_by(rule, policy)))),
            Err(lookup) => answer(
                self.decide_out_of_line((policy, &[]), &[], subject, cost, time, lookup).decision,
            ),
        }
    }

    /// One charge, by whatever algorithm.
    #[inline(never)]
    fn acquire_by_rule(
        &self,
        policy: &Policy,
        tenant: &[u8],
        subject: &[u8],
        cost: u64,
        time: Timestamp,
    ) -> Result<Taken, Option<Lookup<'_>>> {
        let charge = Charge { policy, tenant, subject, cost };
        let place = self.place(&charge);
        match policy.rule() {
            Rule::TokenBucket(rule) => self.acquire(&charge, rule, place, time),
            Rule::SlidingCounter(rule) => self.acquire(&charge, rule, place, time),
            Rule::FixedWindow(rule) => self.acquire(&charge, rule, place, time),
            Rule::IntervalBucket(rule) => self.acquire(&charge, rule, place, time),
            _ => self.acquire_log(&charge, place, time).ok_or(None),
        }
    }

    /// One charge, by an algorithm whose states are few numbers. Whatever is not as it mostly is, is left
    /// to others, with what was found out.
    #[inline(always)]
    fn acquire<A: FewNumbers>(
        &self,
        charge: &Charge<'_>,
        rule: &A,
        place: Option<(u64, ShortKey)>,
        time: Timestamp,
    ) -> Result<Taken, Option<Lookup<'_>>> {
        let (hash, key) = place.ok_or(None)?;
        let mut shard = self.try_lock_shard(hash).ok_or(None)?;
        let taken = shard.acquire(hash, key, charge, rule, time.as_micros());
        taken.map_err(|reason| Some(Lookup { shard, hash, reason }))
    }

    /// The same of a log that is there.
    #[inline]
    fn acquire_log(
        &self,
        charge: &Charge<'_>,
        place: Option<(u64, ShortKey)>,
        time: Timestamp,
    ) -> Option<Taken> {
        let (hash, key) = place?;
        let mut shard = self.try_lock_shard(hash)?;
        shard.acquire_log(hash, key, charge, time.as_micros(), &self.shared)
    }

    /// The key of a charge and its hash, if the key is a short one.
    #[inline(always)]
    fn place(&self, charge: &Charge<'_>) -> Option<(u64, ShortKey)> {
        let key = ShortKey::new(charge.tenant, charge.state_subject())?;
        Some((self.shared.hash(charge.policy, key), key))
    }

    /// Locks the shard of a hash, unless that takes longer, or it is time to sweep first.
    #[inline(always)]
    fn try_lock_shard(&self, hash: u64) -> Option<Guard<'_>> {
        let mut shard = self.shards.get(self.shard_of(hash))?.0.try_lock()?;
        shard.count_unless_sweep_due().then_some(shard)
    }

    /// One charge, of any key and any algorithm. `None`, and nothing has changed, where that takes more.
    #[inline(never)]
    fn acquire_single(
        &self,
        charge: &Charge<'_>,
        time: Timestamp,
        lookup: Option<Lookup<'_>>,
    ) -> Option<Taken> {
        if charge.subject.len().max(charge.tenant.len()) > MAX_SUBJECT {
            return None;
        }
        let (key, now) = (AnyKey::new(charge.tenant, charge.state_subject()), time.as_micros());
        let Lookup { mut shard, hash, reason } = match lookup {
            Some(lookup) => lookup,
            None => {
                let hash = self.shared.hash(charge.policy, key);
                Lookup { shard: self.lock_shard(hash, now)?, hash, reason: MissReason::Unknown }
            }
        };
        shard.acquire_single(hash, key, charge, now, &self.shared, reason)
    }

    /// Several charges, or one that takes more than that.
    #[inline(never)]
    fn decide_out_of_line(
        &self,
        (policy, others): (&Policy, &[Policy]),
        tenant: &[u8],
        subject: &[u8],
        cost: u64,
        time: Timestamp,
        lookup: Option<Lookup<'_>>,
    ) -> OutOfLine {
        let first = Charge { policy, tenant, subject, cost };
        let taken =
            if others.is_empty() { self.acquire_single(&first, time, lookup) } else { None };
        let charges = Charges::Alike { first, others };
        let decision = match taken {
            Some(taken) => Ok(Decision::one(taken.verdict(policy))),
            None => self.decide_full(&Call { operation: Operation::Acquire, charges }, time),
        };
        OutOfLine { decision, _time: time }
    }

    /// Locks the shard of a hash, and sweeps a little if it is time to.
    #[inline(always)]
    fn lock_shard(&self, hash: u64, now: u64) -> Option<Guard<'_>> {
        let number = self.shard_of(hash);
        let place = self.shards.get(number)?;
        let mut shard = lock(place);
        match shard.count() {
            None => Some(shard),
            Some(away) => Some(self.sweep_and_relock(place, shard, number.wrapping_add(away), now)),
        }
    }

    #[inline(never)]
    fn sweep_and_relock<'s>(
        &'s self,
        place: &'s ShardCell,
        mut shard: Guard<'s>,
        other: usize,
        now: u64,
    ) -> Guard<'s> {
        shard.sweep_step(now, &self.shared);
        drop(shard);
        self.sweep_elsewhere(other, now);
        lock(place)
    }

    /// Any call.
    #[inline(never)]
    fn decide_full(&self, call: &Call<'_>, time: Timestamp) -> Result<Decision, Error> {
        if let Some(decision) = self.acquire_multi(call, time) {
            return Ok(decision);
        }
        // A call that is not well formed must not lock or hash anything. (The above has left all such alone.)
        call.check()?;
        // Between the eviction and the next attempt, other calls may take what was freed.
        const ATTEMPTS: u32 = 4;
        let mut last = self.decide_locked(call, time);
        for _ in 1..ATTEMPTS {
            match last {
                (Err(_), Some(bytes)) if self.evict_heap_entries(bytes, call, time.as_micros()) => {
                    last = self.decide_locked(call, time);
                }
                _ => break,
            }
        }
        last.0
    }

    /// Any call that is well formed, and the bytes outside of the tables that it lacked, if it did.
    fn decide_locked(
        &self,
        call: &Call<'_>,
        time: Timestamp,
    ) -> (Result<Decision, Error>, Option<usize>) {
        let now = time.as_micros();
        let mut places: SmallVec<[locked_call::ChargeSlot<'_>; 4]> = (call.charges.iter())
            .map(|charge| {
                let key = AnyKey::new(charge.tenant, charge.state_subject());
                let hash = self.shared.hash(charge.policy, key);
                locked_call::ChargeSlot { charge, key, hash, shard: self.shard_of(hash) }
            })
            .collect();
        // Always in rising order, so that two calls never wait for each other.
        let mut numbers: SmallVec<[usize; 4]> = places.iter().map(|place| place.shard).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for place in &mut places {
            place.shard = numbers.binary_search(&place.shard).unwrap_or(0);
        }
        let mut locked = LockedCall {
            places,
            shards: numbers.iter().map(|&number| (number, lock(&self.shards[number]))).collect(),
            shared: &self.shared,
            now,
            blocks: matches!(call.operation, Operation::Block { .. }),
            unpacked: None,
            reserved: 0,
            missing: None,
        };
        let mut visit = None;
        for (number, shard) in &mut locked.shards {
            if let Some(away) = shard.count() {
                shard.sweep_step(now, &self.shared);
                visit = visit.or(Some(number.wrapping_add(away)));
            }
        }
        let decision = engine::decide(call, time, &mut locked);
        let missing = locked.missing;
        drop(locked);
        if let Some(number) = visit {
            self.sweep_elsewhere(number, now);
        }
        (decision, missing)
    }

    /// Drops states that keep something outside of the tables, in whichever shards these recover first,
    /// until `bytes` can be set aside. `false` if that cannot be. The call's own states stay.
    ///
    /// The bound on these bytes is the store's: a newcomer's own shard may have nothing that could go
    /// while others have. Shards are locked one at a time.
    #[cold]
    #[inline(never)]
    fn evict_heap_entries(&self, bytes: usize, call: &Call<'_>, now: u64) -> bool {
        if self.shared.when_full == WhenFull::Refuse || bytes > self.shared.heap.max() {
            return false;
        }
        let pinned = |slot: &Slot, policies: &PolicyInterner| {
            call.charges.iter().any(|charge| {
                let key = AnyKey::new(charge.tenant, charge.state_subject());
                slot.is_of(key, charge.policy, policies)
            })
        };
        let mut exhausted = vec![false; self.shards.len()];
        while !self.shared.heap.has_room(bytes) {
            let earliest = |number: usize| lock(&self.shards[number]).earliest_heap_expiry();
            let candidates = (0..self.shards.len()).filter(|&number| !exhausted[number]);
            let soonest = candidates
                .map(|number| (earliest(number), number))
                .filter(|(time, _)| *time < u64::MAX)
                .min();
            let Some((_, number)) = soonest else { return false };
            let mut shard = lock(&self.shards[number]);
            exhausted[number] = !shard.evict_heap_entries(bytes, now, &self.shared, pinned);
        }
        true
    }

    /// Sweeps a little in a shard, unless somebody is there already.
    fn sweep_elsewhere(&self, number: usize, now: u64) {
        if let Some(mut shard) = self.shards[number % self.shards.len()].0.try_lock() {
            shard.sweep_step(now, &self.shared);
        }
    }

    /// The high bits of the hash.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        let scaled = (u128::from(hash) * self.shards.len() as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    fn each_shard<'s, T>(&'s self, of: impl Fn(&Shard) -> T + 's) -> impl Iterator<Item = T> + 's {
        self.shards.iter().map(move |shard| of(&lock(shard)))
    }

    fn fixed_bytes(&self) -> usize {
        size_of::<Self>() + self.shards.len() * size_of::<ShardCell>()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline(always)]
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.decide_by(&call, &self.clock, Answer::ready)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let now = BatchClock(self.clock.now());
        Answer::ready(
            calls.iter().map(|call| self.decide_by(call, &now, |decision| decision)).collect(),
        )
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.clock.now()))
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        // A log that doubles has up to twice the room it needs, and its old half while it moves.
        let records = usize::try_from(policy.rule().most_records()).unwrap_or(usize::MAX);
        let needed = records.saturating_mul(2 * 16);
        if needed <= self.shared.heap.max() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "one state of `{policy}` may take {needed} bytes, and all logs together have {}; \
                 raise max_spill_bytes, or give the log a grain",
                self.shared.heap.max(),
            ),
        ))
    }
}

impl<C: fmt::Debug> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Every change of a shard is complete before anything that could panic: so what a thread leaves that
/// panics is whole.
#[inline(always)]
fn lock(shard: &ShardCell) -> Guard<'_> {
    match shard.0.try_lock() {
        Some(shard) => shard,
        None => lock_contended(shard),
    }
}

/// Looks again at longer and longer intervals, in which the other thread may well do several calls
/// without its processor losing sight of the shard. A thread that holds the lock for longer than that
/// was interrupted: then this lets others run, and at last sleeps, whoever they are.
#[cold]
#[inline(never)]
fn lock_contended(shard: &ShardCell) -> Guard<'_> {
    for look in 0..u32::MAX {
        match look {
            0..LOOKS => (0..FIRST << look).for_each(|_| hint::spin_loop()),
            LOOKS..YIELDS => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
        if let Some(shard) = shard.0.try_lock() {
            return shard;
        }
    }
    shard.0.lock()
}

const FIRST: u32 = 4;
/// That is a few microseconds in all.
const LOOKS: u32 = 7;

const YIELDS: u32 = LOOKS + 8;

const NAP: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_takes_two_cache_lines_with_its_lock() {
        assert_eq!(size_of::<ShardCell>(), 128);
    }
}
