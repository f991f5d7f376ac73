//! A part of the store (shard): a bounded table of records, which evicts records when it is full.

use tidegate_core::engine::Record;
use tidegate_core::no_semver::{Evaluation, FastOutcome, PackedAlgorithm, PackedState};
use tidegate_core::{Charge, Error, ErrorKind, MAX_EXACT, Policy};

use crate::expiry_bounds::Scope;
use crate::interner::{PolicyId, PolicyInterner};
use crate::key::{ShortKey, StoredKey};
use crate::shared::{Shared, WhenFull};
use crate::slot::{AnyKey, KeyQuery, Slot, Uncommon};
use crate::table::{EntryInfo, Table};

/// The implementation of [`EntryInfo`] for the slots of a shard. It needs the policies, because the
/// expiry of a packed state depends on its policy.
struct SlotInfo<'s> {
    policies: &'s mut PolicyInterner,
    shared: &'s Shared,
}

impl EntryInfo<Slot> for SlotInfo<'_> {
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

/// A part of the store (shard): a table, and the policies of the records in the table.
// A part of the store (shard) and its lock take two cache lines. The first cache line contains the
// fields that each call writes and the fields that a lookup reads. The second cache line contains
// the policies.
#[repr(C)]
pub(crate) struct Shard {
    /// The number of calls on this part of the store (shard). The number wraps around.
    calls: u32,
    table: Table<Slot>,
    policies: PolicyInterner,
}

/// The reason why the fast path did not decide a charge.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MissReason {
    Absent,
    /// The fast path does not know whether the record exists. A boxed record, or a record that was
    /// written for another [`Policy`] object, is possibly in the table.
    Unknown,
}

/// The number of calls on a part of the store (shard) per sweep. A sweep visits a group of 128
/// slots in this shard, and a group in another shard, because a shard without calls would otherwise
/// keep its expired states. So sweeps visit 256 slots per 64 calls, and a call fills at most one
/// slot per charge.
const CALLS_PER_SWEEP: u32 = 64;

/// The time in µs for which a sweep keeps a recovered state. If the subject of a fast limit makes
/// another call within this time, the call finds the state. To insert the state again would take
/// twice as long. A full shard removes recovered states earlier.
const KEPT_RECOVERED: u64 = 100_000;

/// A record that expires at this time or later is never evicted.
const NEVER: u64 = MAX_EXACT;

/// The maximum number of evictions before the lock of the shard is released.
const MAX_EVICTIONS: usize = 64;

impl Shard {
    pub(crate) fn new(max_len: usize) -> Self {
        Self { table: Table::new(max_len), policies: PolicyInterner::default(), calls: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.policies.heap_bytes()
    }

    pub(crate) fn max_bytes(&self) -> usize {
        let max_len = self.table.max_len();
        Table::<Slot>::max_bytes(max_len) + PolicyInterner::max_heap_bytes(max_len)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (&Slot, Record)> {
        self.table.iter().filter_map(|slot| Some((slot, self.unpack(slot)?)))
    }

    /// Returns the index of the slot with the record for a key. The record was written under
    /// `policy`, or under a policy that shares its states.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, key: impl KeyQuery, policy: &Policy) -> Option<usize> {
        self.table.find(slot_hash(hash), |slot| slot.matches(key, policy, &self.policies))
    }

    pub(crate) fn slot(&self, index: usize) -> Option<&Slot> {
        self.table.get(index)
    }

    pub(crate) fn unpack(&self, slot: &Slot) -> Option<Record> {
        match slot {
            Slot::Short { numbers, .. } | Slot::Uncommon(Uncommon::Long { numbers, .. }) => {
                self.policies.get(slot.policy()).map(|policy| numbers.record(policy))
            }
            Slot::Uncommon(Uncommon::Boxed(entry)) => {
                entry.as_ref().map(|entry| entry.record.clone())
            }
        }
    }

    /// Acquires one charge with a short key, if the record of the charge exists and is packed. If
    /// the function returns `Err`, no record has changed.
    #[inline(always)]
    pub(crate) fn acquire<A: PackedAlgorithm>(
        &mut self,
        hash: u64,
        key: ShortKey,
        charge: &Charge<'_>,
        rule: &A,
        now: u64,
    ) -> Result<FastOutcome, MissReason> {
        let policy = self.policies.id_of(charge.policy).ok_or(MissReason::Unknown)?;
        let key = StoredKey::new(key, policy);
        match self.table.find(slot_hash(hash), |slot| slot.may_match(key)) {
            // A charge never makes a record expire earlier, so the expiry bounds of the table stay
            // valid.
            Some(index) => {
                let numbers = self.table.get_mut(index).and_then(Slot::short_numbers);
                let outcome = numbers.and_then(|numbers| numbers.acquire_by(rule, charge, now));
                outcome.ok_or(MissReason::Unknown)
            }
            // If the shard has only one policy, a record that was not found does not exist. If it
            // has several policies, the record was possibly written for another policy of the same
            // name.
            None if self.policies.is_single() => {
                self.table.prefetch_insert(slot_hash(hash));
                Err(MissReason::Absent)
            }
            None => Err(MissReason::Unknown),
        }
    }

    /// Acquires one charge with a short key to an existing log. Returns `None` and changes nothing
    /// if this is not possible without the engine.
    #[inline(always)]
    pub(crate) fn acquire_log(
        &mut self,
        hash: u64,
        key: ShortKey,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
    ) -> Option<FastOutcome> {
        let (index, key) = self.find_short(hash, key, charge.policy)?;
        self.table.get_mut(index)?.boxed_with_key(key)?.acquire_log(charge, now, shared)
    }

    /// Returns the index of the slot of the table that possibly contains the record for a short key
    /// and a policy object. A slot with a long key or a boxed record possibly contains another key.
    #[inline(always)]
    fn find_short(&self, hash: u64, key: ShortKey, policy: &Policy) -> Option<(usize, StoredKey)> {
        let key = StoredKey::new(key, self.policies.id_of(policy)?);
        let index = self.table.find(slot_hash(hash), |slot| slot.may_match(key))?;
        Some((index, key))
    }

    /// Evaluates a charge on a packed record, without making the charge. Returns the index of the
    /// record's slot and the evaluation. A charge without a record has no index.
    pub(crate) fn evaluate(
        &self,
        hash: u64,
        key: ShortKey,
        charge: &Charge<'_>,
        now: u64,
    ) -> Option<(Option<usize>, Evaluation)> {
        // `find_short` finds only a record of the same policy object. `find` also finds a record of
        // an equal policy.
        let found = self.find_short(hash, key, charge.policy).map(|(index, _)| index);
        let found = found.or_else(|| self.find(hash, key, charge.policy));
        let Some(index) = found else {
            return Some((None, PackedState::NONE.evaluate(charge, now)?));
        };
        match self.table.get(index)? {
            slot @ Slot::Short { numbers, .. }
                if self.policies.is_policy(slot.policy(), charge.policy) =>
            {
                Some((Some(index), numbers.evaluate(charge, now)?))
            }
            _ => None,
        }
    }

    pub(crate) fn write(&mut self, index: usize, after: PackedState) {
        if let Some(numbers) = self.table.get_mut(index).and_then(Slot::short_numbers) {
            *numbers = after;
        }
    }

    /// Writes the packed state of a key, and inserts a record if the key has none. The caller must
    /// first call [`make_room`](Self::make_room) with success.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        key: ShortKey,
        policy: &Policy,
        after: PackedState,
        shared: &Shared,
    ) {
        match self.find(hash, key, policy) {
            Some(index) => self.write(index, after),
            None => self.insert_packed(hash, key, policy, after, shared),
        }
    }

    /// Inserts a packed state for a key without a record. The table must not be full.
    #[inline]
    fn insert_packed(
        &mut self,
        hash: u64,
        key: impl KeyQuery,
        policy: &Policy,
        numbers: PackedState,
        shared: &Shared,
    ) {
        let slot = key.slot(self.policies.intern(policy), numbers);
        let (table, info) = self.parts(shared);
        table.insert(slot_hash(hash), slot, &info);
    }

    /// Acquires one charge, even if the record of the charge does not exist yet. Returns `None` and
    /// changes nothing if the charge needs the engine: if its record does not fit into the table or
    /// has another policy, or if the subject is blocked before or after the charge.
    pub(crate) fn acquire_single(
        &mut self,
        hash: u64,
        key: AnyKey<'_>,
        charge: &Charge<'_>,
        now: u64,
        shared: &Shared,
        reason: MissReason,
    ) -> Option<FastOutcome> {
        let index = match reason {
            MissReason::Absent => None,
            MissReason::Unknown => self.find(hash, key, charge.policy),
        };
        let Some(index) = index else {
            return self.acquire_new(hash, key, charge, now, shared);
        };
        let slot = self.table.get_mut(index)?;
        if !self.policies.is_policy(slot.policy(), charge.policy) {
            return None;
        }
        match slot {
            Slot::Short { numbers, .. } | Slot::Uncommon(Uncommon::Long { numbers, .. }) => {
                numbers.acquire(charge, now)
            }
            Slot::Uncommon(Uncommon::Boxed(entry)) => {
                entry.as_mut()?.acquire_log(charge, now, shared)
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
    ) -> Option<FastOutcome> {
        let mut numbers = PackedState::NONE;
        let outcome = numbers.acquire(charge, now)?;
        if numbers != PackedState::NONE {
            let is_full = self.table.len() >= self.table.max_len();
            if is_full && !self.free_one(Scope::All, now, shared, |_, _| false)
                || !shared.heap.reserve(key.heap_bytes())
            {
                return None;
            }
            self.insert_packed(hash, key, charge.policy, numbers, shared);
        }
        Some(outcome)
    }

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
            Slot::Uncommon(Uncommon::Boxed(entry)) => {
                let Some(entry) = entry else { return };
                change(&mut entry.record);
                let newer = reintern(policies, older, &entry.record);
                match PackedState::new(&entry.record) {
                    Some(numbers) => {
                        let new = |tenant: &[u8], subject: &[u8]| {
                            Slot::new(tenant, subject, newer, numbers)
                        };
                        *slot = slot.with_key(new);
                    }
                    None => entry.key.set_policy(newer),
                }
            }
            Slot::Short { numbers, .. } | Slot::Uncommon(Uncommon::Long { numbers, .. }) => {
                let Some(policy) = policies.get(older) else { return };
                let mut record = numbers.record(policy);
                change(&mut record);
                let newer = reintern(policies, older, &record);
                match PackedState::new(&record) {
                    Some(changed) if newer == older => *numbers = changed,
                    _ => *slot = slot.with_record(newer, record),
                }
            }
        }
        shared.heap.adjust(before, slot.heap_bytes());
        let (table, info) = self.parts(shared);
        table.expiry_changed(index, &info);
    }

    /// Inserts a record for a key without a record. The caller must first call
    /// [`make_room`](Self::make_room) with success.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        charge: &Charge<'_>,
        record: Record,
        shared: &Shared,
    ) {
        let policy = self.policies.intern(record.policy());
        let slot = Slot::from_record(charge.tenant, charge.state_subject(), policy, record);
        shared.heap.adjust(0, slot.heap_bytes());
        let (table, info) = self.parts(shared);
        table.insert(slot_hash(hash), slot, &info);
    }

    pub(crate) fn remove(&mut self, index: usize, shared: &Shared) {
        let (table, mut info) = self.parts(shared);
        if let Some(slot) = table.remove(index) {
            info.on_removed(slot);
        }
    }

    /// Counts a call and returns `true`. If a sweep is due, returns `false` and does not count the
    /// call.
    #[inline(always)]
    pub(crate) fn count_unless_sweep_due(&mut self) -> bool {
        let calls = self.calls.wrapping_add(1);
        let counts = !calls.is_multiple_of(CALLS_PER_SWEEP);
        if counts {
            self.calls = calls;
        }
        counts
    }

    /// Counts a call. If a sweep is due, returns the distance from this shard's number to the
    /// number of the second shard that the call must sweep.
    #[inline]
    pub(crate) fn count_call(&mut self) -> Option<usize> {
        self.calls = self.calls.wrapping_add(1);
        let sweeps = self.calls / CALLS_PER_SWEEP;
        self.calls.is_multiple_of(CALLS_PER_SWEEP).then_some(sweeps as usize)
    }

    /// Counts a call, and sweeps this shard if a sweep is due. Returns the result of
    /// [`count_call`](Self::count_call).
    #[inline]
    pub(crate) fn count_and_sweep(&mut self, now: u64, shared: &Shared) -> Option<usize> {
        let offset = self.count_call();
        if offset.is_some() {
            self.sweep_step(now, shared);
        }
        offset
    }

    pub(crate) fn sweep_step(&mut self, now: u64, shared: &Shared) {
        let (table, mut info) = self.parts(shared);
        table.sweep_step(now.saturating_sub(KEPT_RECOVERED), &mut info);
    }

    pub(crate) fn sweep_all(&mut self, now: u64, shared: &Shared) {
        let mut before = usize::MAX;
        while self.table.len() < before {
            before = self.table.len();
            let (table, mut info) = self.parts(shared);
            table.sweep_any(now, &mut info);
        }
    }

    fn parts<'s>(&'s mut self, shared: &'s Shared) -> (&'s mut Table<Slot>, SlotInfo<'s>) {
        (&mut self.table, SlotInfo { policies: &mut self.policies, shared })
    }

    /// Makes room for new records (`missing` returns their number), and reserves `bytes` bytes of
    /// the heap budget. Records for which `is_pinned` returns `true` are removed only if they have
    /// expired.
    pub(crate) fn make_room(
        &mut self,
        missing: impl Fn(&Self) -> usize,
        bytes: usize,
        now: u64,
        shared: &Shared,
        is_pinned: impl Fn(&Slot, &PolicyInterner) -> bool,
    ) -> Result<(), Error> {
        while self.table.len() + missing(self) > self.table.max_len() {
            if !self.free_one(Scope::All, now, shared, &is_pinned) {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!(
                        "the subject's shard has {} states of at most {}, and none can be evicted",
                        self.table.len(),
                        self.table.max_len(),
                    ),
                ));
            }
        }
        while !shared.heap.reserve(bytes) {
            if !self.free_one(Scope::HeapOnly, now, shared, &is_pinned) {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!(
                        "logs and long subjects take {} bytes of at most {}; {bytes} more do not \
                         fit, and nothing can be evicted",
                        shared.heap.used(),
                        shared.heap.max(),
                    ),
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn min_heap_expiry(&self) -> u64 {
        self.table.min_expiry(Scope::HeapOnly)
    }

    /// Evicts the records on the heap that expire first, until `bytes` bytes fit into the heap
    /// budget, or after [`MAX_EVICTIONS`] evictions. Returns `false` if the bytes do not fit and no
    /// record could be evicted.
    pub(crate) fn evict_heap_entries(
        &mut self,
        bytes: usize,
        now: u64,
        shared: &Shared,
        is_pinned: impl Fn(&Slot, &PolicyInterner) -> bool,
    ) -> bool {
        let mut evicted = 0;
        while evicted < MAX_EVICTIONS && !shared.heap.has_room(bytes) {
            if !self.free_one(Scope::HeapOnly, now, shared, &is_pinned) {
                break;
            }
            evicted += 1;
        }
        evicted > 0 || shared.heap.has_room(bytes)
    }

    /// Removes expired records, or evicts the record that expires first. [`WhenFull::Refuse`]
    /// forbids the eviction. Returns `false` if no record was removed.
    fn free_one(
        &mut self,
        scope: Scope,
        now: u64,
        shared: &Shared,
        is_pinned: impl Fn(&Slot, &PolicyInterner) -> bool,
    ) -> bool {
        let before = self.table.len();
        let (table, mut info) = self.parts(shared);
        table.sweep_any(now, &mut info);
        if table.len() < before {
            return true;
        }
        if shared.when_full == WhenFull::Refuse {
            return false;
        }
        if table.min_expiry(scope) >= NEVER {
            return false;
        }
        let may_evict = |slot: &Slot| !slot.is_kept() && !is_pinned(slot, info.policies);
        let evicted = table.evict_earliest(scope, may_evict, &info);
        let Some(slot) = evicted else { return false };
        info.on_removed(slot);
        true
    }
}

/// Returns the policy id of a changed record, whose policy has possibly changed too. `older` is the
/// previous policy id.
fn reintern(policies: &mut PolicyInterner, older: PolicyId, record: &Record) -> PolicyId {
    if policies.is_policy(older, record.policy()) {
        return older;
    }
    let newer = policies.intern(record.policy());
    policies.release(older);
    newer
}

/// Returns the hash that the table uses for a key. The store has chosen the shard by the high bits
/// of `hash`, and the table also uses high bits, so `slot_hash` replaces them by the low bits.
#[inline]
fn slot_hash(hash: u64) -> u64 {
    hash.rotate_left(32)
}
