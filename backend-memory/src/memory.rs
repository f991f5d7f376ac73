use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use smallvec::SmallVec;
use tidegate_core::call::MAX_SUBJECT;
use tidegate_core::engine::{self, Record};
use tidegate_core::{
    Answer, Call, Charge, Clock, Decision, Error, ErrorKind, Operation, Policy, Store, SystemClock,
    Timestamp, Verdict,
};

use crate::session::Session;
use crate::shard::{Shard, Shared};
use crate::spill::Spill;

/// What happens when a new state does not fit, and all that are there still matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// The state goes that would have recovered soonest.
    #[default]
    EvictSoonest,
    /// The new state is refused with [`ErrorKind::OutOfMemory`]; the caller decides.
    Refuse,
}

/// States in this process's memory, in shards that are locked one by one.
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    shards: Box<[Place]>,
    shared: Shared,
}

/// A shard on cache lines of its own, so that threads at work in two shards do not disturb each other.
#[repr(align(128))]
struct Place(Mutex<Shard>);

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
    /// subjects that are shut out, and in subjects longer than 20 bytes (19 with a tenant, which counts
    /// too). Default: 256 MiB.
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
        let most = self.max_keys / count;
        MemoryStore {
            clock: self.clock,
            shards: (0..count).map(|_| Place(Mutex::new(Shard::new(most)))).collect(),
            shared: Shared {
                hasher: RandomState::default(),
                spill: Spill::new(self.max_spill),
                when_full: self.when_full,
            },
        }
    }
}

/// So few that a growing table moves them within a fraction of a millisecond.
const KEYS_PER_SHARD: usize = 4096;

impl<C: Clock> MemoryStore<C> {
    /// Carries out one call, without any async.
    ///
    /// # Errors
    ///
    /// As [`Store::decide`] in general; of the store's own, [`ErrorKind::OutOfMemory`].
    #[inline]
    pub fn decide_now(&self, call: &Call<'_>) -> Result<Decision, Error> {
        self.decide_at(call, self.clock.now())
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
        self.fixed_bytes() + self.each_shard(Shard::bytes).sum::<usize>() + self.shared.spill.used()
    }

    /// Bytes that the store never exceeds. (While a shard grows, its old table is there too for a
    /// moment: at most the shard's part of this, for each thread that is just growing one.)
    #[must_use]
    pub fn most_bytes(&self) -> usize {
        let shards = self.each_shard(Shard::most_bytes).sum::<usize>();
        self.fixed_bytes() + shards + self.shared.spill.most()
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
                see(slot.tenant(), slot.subject(), &record);
            }
        }
    }

    #[inline]
    fn decide_at(&self, call: &Call<'_>, time: Timestamp) -> Result<Decision, Error> {
        let one = (call.charges.get(0)).filter(|charge| is_usual(call, charge));
        match one.and_then(|charge| self.acquire(&charge, time.as_micros())) {
            Some(verdict) => Ok(Decision::one(verdict)),
            None => self.decide_any(call, time),
        }
    }

    /// What most calls are, the shortest way. `None`, and nothing has changed, where that is not
    /// enough.
    #[inline]
    fn acquire(&self, charge: &Charge<'_>, now: u64) -> Option<Verdict> {
        let hash = self.shared.hash(charge);
        let number = self.shard_of(hash);
        let mut shard = lock(self.shards.get(number)?);
        let visit = shard.count(now, &self.shared);
        let verdict = shard.acquire(hash, charge, now, &self.shared);
        drop(shard);
        if let Some(away) = visit {
            self.look_after(number.wrapping_add(away), now);
        }
        verdict
    }

    /// Any call.
    #[inline(never)]
    fn decide_any(&self, call: &Call<'_>, time: Timestamp) -> Result<Decision, Error> {
        // A call that is not well formed must not lock or hash anything.
        call.check()?;
        let now = time.as_micros();
        let hashes: SmallVec<[u64; 4]> =
            call.charges.iter().map(|c| self.shared.hash(&c)).collect();
        // Always in rising order, so that two calls never wait for each other.
        let mut numbers: SmallVec<[usize; 4]> =
            hashes.iter().map(|hash| self.shard_of(*hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let place = |hash| numbers.binary_search(&self.shard_of(hash)).unwrap_or(0);
        let mut session = Session {
            places: hashes.into_iter().map(|hash| (hash, place(hash))).collect(),
            shards: numbers.iter().map(|&number| (number, lock(&self.shards[number]))).collect(),
            shared: &self.shared,
            charges: call.charges,
            now,
            blocks: matches!(call.operation, Operation::Block { .. }),
            unpacked: None,
            reserved: 0,
        };
        let mut visit = None;
        for (number, shard) in &mut session.shards {
            let away = shard.count(now, &self.shared);
            visit = visit.or(away.map(|away| number.wrapping_add(away)));
        }
        let decision = engine::decide(call, time, &mut session);
        drop(session);
        if let Some(number) = visit {
            self.look_after(number, now);
        }
        decision
    }

    /// Sweeps a little in a shard, unless somebody is there already.
    fn look_after(&self, number: usize, now: u64) {
        if let Ok(mut shard) = self.shards[number % self.shards.len()].0.try_lock() {
            shard.sweep_on(now, &self.shared);
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
        size_of::<Self>() + self.shards.len() * size_of::<Place>()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline]
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(self.decide_now(&call))
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        let now = self.clock.now();
        Answer::ready(calls.iter().map(|call| self.decide_at(call, now)).collect())
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        Answer::ready(Ok(self.clock.now()))
    }

    fn supports(&self, policy: &Policy) -> Result<(), Error> {
        // A log that doubles has up to twice the room it needs, and its old half while it moves.
        let records = usize::try_from(policy.rule().most_records()).unwrap_or(usize::MAX);
        let needed = records.saturating_mul(2 * 16);
        if needed <= self.shared.spill.most() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "one state of `{policy}` may take {needed} bytes, and all logs together have {}; \
                 raise max_spill_bytes, or give the log a grain",
                self.shared.spill.most(),
            ),
        ))
    }
}

impl<C: fmt::Debug> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// Whether a call is one that may take the shortest way: nothing but lengths could be wrong with it.
#[inline]
fn is_usual(call: &Call<'_>, charge: &Charge<'_>) -> bool {
    matches!(call.operation, Operation::Acquire)
        && call.charges.len() == 1
        && charge.subject.len().max(charge.tenant.len()) <= MAX_SUBJECT
}

/// A thread that panicked while it held the lock had been handed a bug; every change of a shard is
/// complete before anything that could panic, so what it left is whole.
#[inline]
fn lock(shard: &Place) -> MutexGuard<'_, Shard> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}
