//! One shard of the store: a table of records, and what happens when it is full.

use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use tidegate_core::engine::{FewNumbers, Numbers, Record, Taken, Weighing};
use tidegate_core::{Charge, Error, ErrorKind, Policy};

use crate::WhenFull;
use crate::expiry_bounds::Scope;
use crate::heap_budget::HeapBudget;
use crate::interner::{PolicyId, PolicyInterner};
use crate::key::{ShortKey, StoredKey};
use crate::slot::{AnyKey, KeyQuery, Slot, Uncommon};
use crate::table::{EntryInfo, Table};

/// What all shards share.
pub(crate) struct Shared {
    seeds: Seeds,
    pub(crate) heap: HeapBudget,
    pub(crate) when_full: WhenFull,
}

/// What makes the hash of a key unpredictable, so that nobody can aim at a shard or a slot.
struct Seeds {
    one: u64,
    others: SharedSeed,
}

impl Seeds {
    /// From the randomness that the standard library gives its maps.
    fn random() -> Self {
        let random = || RandomState::new().hash_one(());
        Self { one: random(), others: SharedSeed::from_u64(random()) }
    }
}

impl Shared {
    pub(crate) fn new(max_spill: usize, when_full: WhenFull) -> Self {
        Self { seeds: Seeds::random(), heap: HeapBudget::new(max_spill), when_full }
    }

    #[inline]
    pub(crate) fn hash(&self, policy: &Policy, key: impl KeyQuery) -> u64 {
        let mut hasher = self.hasher(policy);
        key.hash_into(&mut hasher);
        hasher.finish()
    }

    #[inline]
    fn hasher(&self, policy: &Policy) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.seeds.one ^ policy.state_hash(), &self.seeds.others)
    }
}

/// Knows what the slots of a shard's table mean.
struct Slots<'s> {
    policies: &'s mut PolicyInterner,
    shared: &'s Shared,
}

impl EntryInfo<Slot> for Slots<'_> {
    #[inline]
    fn expires_at(&self, slot: &Slot) -> u64 {
        slot.expires_at(self.policies)
    }

    #[inline]
    fn uses_heap(&self, slot: &Slot) -> bool {
        slot.heap_bytes() > 0
    }

    fn on_removed(&mut self, slot: Slot) {
        self.shared.heap.adjust(slot.heap_bytes(), 0);
        self.policies.release(slot.policy());
    }
}

/// In two cache lines with its lock: what changes at each call, and what mostly stays.
#[repr(C)]
pub(crate) struct Shard {
    /// Calls that came to this shard.
    calls: u32,
    table: Table<Slot>,
    policies: PolicyInterner,
}

/// Why the shortest way did not do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MissReason {
    /// There is no such record.
    Absent,
    Unknown,
}

/// One call in so many sweeps a little: here, and in another shard, in turn, as some shards may get
/// no calls. That is 4 slots a call, more than the one that it may fill.
const CALLS_PER_SWEEP: u32 = 64;

impl Shard {
    pub(crate) fn new(max_len: usize) -> Self {
        Self { table: Table::new(max_len), policies: PolicyInterner::default(), calls: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes that the shard takes, apart from what its slots keep elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.policies.heap_bytes()
    }

    /// Bytes that the shard takes at its bound.
    pub(crate) fn max_bytes(&self) -> usize {
        let max_len = self.table.max_len();
        Table::<Slot>::max_bytes(max_len) + PolicyInterner::max_heap_bytes(max_len)
    }

    /// The keys and their records.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Slot, Record)> {
        self.table.iter().filter_map(|slot| Some((slot, self.unpack(slot)?)))
    }

    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: impl KeyQuery, policy: &Policy) -> Option<usize> {
        self.table.find(slot_hash(hash), |slot| slot.is_of(key, policy, &self.policies))
    }

    pub(crate) fn slot(&self, index: usize) -> Option<&Slot> {
        self.table.get(index)
    }

    /// The record of a slot.
    pub(crate) fn unpack(&self, slot: &Slot) -> Option<Record> {
        match slot {
            Slot::Short { numbers, .. } | Slot::Uncommon(Uncommon::Long { numbers, .. }) => {
                self.policies.get(slot.policy()).map(|policy| numbers.record(policy))
            }
            Slot::Uncommon(Uncommon::Boxed(boxed)) => {
                boxed.as_ref().map(|boxed| boxed.record.clone())
            }
        }
    }

    /// Decides on one charge to a record of few numbers, and takes it if it is admitted. If not so,
    /// nothing has changed.
    #[inline(always)]
    pub(crate) fn acquire<A: FewNumbers>(
        &mut self,
        hash: u64,
        key: ShortKey,
        charge: &Charge<'_>,
        rule: &A,
        now: u64,
    ) -> Result<Taken, MissReason> {
        let place = self.policies.id_of(charge.policy).ok_or(MissReason::Unknown)?;
        let key = StoredKey::new(key, place);
        match self.table.find(slot_hash(hash), |slot| slot.may_be_of(key)) {
            // What was taken makes a record recover later, never earlier: the table need not hear.
            Some(index) => {
                let numbers = self.table.get_mut(index).and_then(Slot::short_numbers);
                let taken = numbers.and_then(|numbers| numbers.acquire_by(rule, charge, now));
                taken.ok_or(MissReason::Unknown)
            }
            // With another policy, of the same name, it could be there.
            None if self.policies.is_single() => {
                self.table.expect(slot_hash(hash));
                Err(MissReason::Absent)
            }
            None => Err(MissReason::Unknown),
        }
    }

    /// The same to a log.
    #[inline(always)]
    pub(crate) fn acquire_log(
        &mut self,
        hash: u64,
        key: ShortKey,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
    ) -> Option<Taken> {
        let (index, key) = self.find_short(hash, key, charge.policy)?;
        self.table.get_mut(index)?.boxed_with_key(key)?.acquire_log(charge, now, shared)
    }

    /// Where a short key may be, by the very object that is its policy.
    #[inline(always)]
    fn find_short(&self, hash: u64, key: ShortKey, policy: &Policy) -> Option<(usize, StoredKey)> {
        let key = StoredKey::new(key, self.policies.id_of(policy)?);
        let index = self.table.find(slot_hash(hash), |slot| slot.may_be_of(key))?;
        Some((index, key))
    }

    /// Where a record of few numbers lies, and what would become of a charge to it.
    pub(crate) fn weigh(
        &self,
        hash: u64,
        key: ShortKey,
        charge: &Charge<'_>,
        now: u64,
    ) -> Option<(usize, Weighing)> {
        let index = match self.find_short(hash, key, charge.policy) {
            Some((index, _)) => index,
            // An equal policy that is another object, as one made for this request.
            None => self.find(hash, key, charge.policy)?,
        };
        match self.table.get(index)? {
            slot @ Slot::Short { numbers, .. }
                if self.policies.is(slot.policy(), charge.policy) =>
            {
                Some((index, numbers.weigh(charge, now)?))
            }
            _ => None,
        }
    }

    /// Writes what a charge that was weighed leaves.
    pub(crate) fn write(&mut self, index: usize, after: Numbers) {
        if let Some(numbers) = self.table.get_mut(index).and_then(Slot::short_numbers) {
            *numbers = after;
        }
    }

    /// Decides on one charge to any record, there or not, and takes it if it is admitted. `None`, and
    /// nothing has changed, where there is no room for it, or where it has to be blocked.
    pub(crate) fn acquire_single(
        &mut self,
        hash: u64,
        key: AnyKey<'_>,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
        reason: MissReason,
    ) -> Option<Taken> {
        let found = match reason {
            MissReason::Absent => None,
            MissReason::Unknown => self.find(hash, key, charge.policy),
        };
        let Some(index) = found else {
            return self.acquire_new(hash, key, charge, now, shared);
        };
        let slot = self.table.get_mut(index)?;
        if !self.policies.is(slot.policy(), charge.policy) {
            return None;
        }
        match slot {
            Slot::Short { numbers, .. } | Slot::Uncommon(Uncommon::Long { numbers, .. }) => {
                numbers.acquire(charge, now)
            }
            Slot::Uncommon(Uncommon::Boxed(boxed)) => {
                boxed.as_mut()?.acquire_log(charge, now, shared)
            }
        }
    }

    fn acquire_new(
        &mut self,
        hash: u64,
        key: AnyKey<'_>,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
    ) -> Option<Taken> {
        let mut numbers = Numbers::NONE;
        let taken = numbers.acquire(charge, now)?;
        if numbers != Numbers::NONE {
            let is_full = self.table.len() >= self.table.max_len();
            if is_full && !self.free_one(Scope::All, now, shared, |_, _| false)
                || !shared.heap.reserve(key.heap_bytes())
            {
                return None;
            }
            let slot = key.slot(self.policies.intern(charge.policy), numbers);
            let (table, slots) = self.parts(shared);
            table.insert(slot_hash(hash), slot, &slots);
        }
        Some(taken)
    }

    /// Changes the record at `index`.
    pub(crate) fn update(
        &mut self,
        index: usize,
        shared: &Shared,
        change: impl FnOnce(&mut Record),
    ) {
        let Self { table, policies, .. } = self;
        let Some(slot) = table.get_mut(index) else { return };
        let (before, older) = (slot.heap_bytes(), slot.policy());
        match slot {
            Slot::Uncommon(Uncommon::Boxed(boxed)) => {
                let Some(boxed) = boxed else { return };
                change(&mut boxed.record);
                let newer = reintern(policies, older, &boxed.record);
                match Numbers::of(&boxed.record) {
                    Some(numbers) => {
                        let new = |tenant: &[u8], subject: &[u8]| {
                            Slot::new(tenant, subject, newer, numbers)
                        };
                        *slot = slot.with_key(new);
                    }
                    None => boxed.key.set_policy(newer),
                }
            }
            Slot::Short { numbers, .. } | Slot::Uncommon(Uncommon::Long { numbers, .. }) => {
                let Some(policy) = policies.get(older) else { return };
                let mut record = numbers.record(policy);
                change(&mut record);
                let newer = reintern(policies, older, &record);
                match Numbers::of(&record) {
                    Some(changed) if newer == older => *numbers = changed,
                    _ => *slot = slot.with(newer, record),
                }
            }
        }
        shared.heap.adjust(before, slot.heap_bytes());
        let (table, slots) = self.parts(shared);
        table.expiry_changed(index, &slots);
    }

    /// Inserts a record for a key that has none. Room was made before.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        charge: &Charge<'_>,
        record: Record,
        shared: &Shared,
    ) {
        let policy = self.policies.intern(record.policy());
        let slot = Slot::of(charge.tenant, charge.state_subject(), policy, record);
        shared.heap.adjust(0, slot.heap_bytes());
        let (table, slots) = self.parts(shared);
        table.insert(slot_hash(hash), slot, &slots);
    }

    pub(crate) fn remove(&mut self, index: usize, shared: &Shared) {
        let (table, mut slots) = self.parts(shared);
        if let Some(slot) = table.remove(index) {
            slots.on_removed(slot);
        }
    }

    /// Counts a call, unless the next is one that sweeps.
    #[inline(always)]
    pub(crate) fn count_unless_sweep_due(&mut self) -> bool {
        let calls = self.calls.wrapping_add(1);
        let counts = !calls.is_multiple_of(CALLS_PER_SWEEP);
        if counts {
            self.calls = calls;
        }
        counts
    }

    /// Counts a call. Now and then it says that it is time to sweep: here, and in the shard that is so
    /// far away.
    #[inline]
    pub(crate) fn count(&mut self) -> Option<usize> {
        self.calls = self.calls.wrapping_add(1);
        let sweeps = self.calls / CALLS_PER_SWEEP;
        self.calls.is_multiple_of(CALLS_PER_SWEEP).then_some(sweeps as usize)
    }

    /// Drops a few records that have recovered, if it comes across some.
    pub(crate) fn sweep_step(&mut self, now: u64, shared: &Shared) {
        let (table, mut slots) = self.parts(shared);
        table.sweep_step(now, &mut slots);
    }

    /// Drops everything that has recovered.
    pub(crate) fn sweep_all(&mut self, now: u64, shared: &Shared) {
        let mut before = usize::MAX;
        while self.table.len() < before {
            before = self.table.len();
            let (table, mut slots) = self.parts(shared);
            table.sweep_any(now, &mut slots);
        }
    }

    fn parts<'s>(&'s mut self, shared: &'s Shared) -> (&'s mut Table<Slot>, Slots<'s>) {
        (&mut self.table, Slots { policies: &mut self.policies, shared })
    }

    /// Makes room for the records that are `missing`, and sets `bytes` aside for what they keep
    /// outside of the table. `pinned` records stay, unless they have recovered.
    pub(crate) fn make_room(
        &mut self,
        missing: impl Fn(&Self) -> usize,
        bytes: usize,
        now: u64,
        shared: &Shared,
        pinned: impl Fn(&Slot, &PolicyInterner) -> bool,
    ) -> Result<(), Error> {
        while self.table.len() + missing(self) > self.table.max_len() {
            if !self.free_one(Scope::All, now, shared, &pinned) {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!(
                        "the subject's shard holds {} states of at most {}, and none may go",
                        self.table.len(),
                        self.table.max_len(),
                    ),
                ));
            }
        }
        while !shared.heap.reserve(bytes) {
            if !self.free_one(Scope::HeapOnly, now, shared, &pinned) {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!(
                        "logs and long subjects take {} bytes of at most {}; {bytes} more do not \
                         fit, and nothing may go",
                        shared.heap.used(),
                        shared.heap.max(),
                    ),
                ));
            }
        }
        Ok(())
    }

    /// No record that keeps something outside of the table recovers before this time.
    pub(crate) fn earliest_heap_expiry(&self) -> u64 {
        self.table.earliest(Scope::HeapOnly)
    }

    /// Evicts records that keep something outside of the table, the first to recover first, until
    /// `bytes` can be set aside, or 64 records are evicted. `false` if none could be.
    pub(crate) fn evict_heap_entries(
        &mut self,
        bytes: usize,
        now: u64,
        shared: &Shared,
        pinned: impl Fn(&Slot, &PolicyInterner) -> bool,
    ) -> bool {
        const MAX_EVICTIONS: usize = 64;
        let mut evicted = 0;
        while evicted < MAX_EVICTIONS && !shared.heap.has_room(bytes) {
            if !self.free_one(Scope::HeapOnly, now, shared, &pinned) {
                break;
            }
            evicted += 1;
        }
        evicted > 0 || shared.heap.has_room(bytes)
    }

    /// Drops what has recovered, or else the record that would recover first, if that is allowed.
    fn free_one(
        &mut self,
        scope: Scope,
        now: u64,
        shared: &Shared,
        pinned: impl Fn(&Slot, &PolicyInterner) -> bool,
    ) -> bool {
        let before = self.table.len();
        let (table, mut slots) = self.parts(shared);
        table.sweep_any(now, &mut slots);
        if table.len() < before {
            return true;
        }
        if shared.when_full == WhenFull::Refuse {
            return false;
        }
        let soonest = table.evict_earliest(scope, |slot| !pinned(slot, slots.policies), &slots);
        let is_one = soonest.is_some();
        soonest.into_iter().for_each(|slot| slots.on_removed(slot));
        is_one
    }
}

/// The place of a record's policy after the record was changed.
fn reintern(policies: &mut PolicyInterner, older: PolicyId, record: &Record) -> PolicyId {
    if policies.is(older, record.policy()) {
        return older;
    }
    let newer = policies.intern(record.policy());
    policies.release(older);
    newer
}

/// The high bits of a hash choose the shard; this moves fresh ones to their place.
#[inline]
fn slot_hash(hash: u64) -> u64 {
    hash.rotate_left(32)
}
