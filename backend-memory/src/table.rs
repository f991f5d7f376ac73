//! A hash table with a bounded number of entries. Expired entries are removed in small steps
//! (sweeps).
//!
//! The table uses open addressing with linear probing. The table in this example has 16 slots in
//! blocks of 8 slots. It contains three entries a, b and c, and their tags have the home slots 2, 2
//! and 3:
//!
//! ```text
//!           block 0                          block 1
//! slot      0   1   2   3   4   5   6   7  | 8   9   ...
//! tags      0   0   A   B   C   0   0   0  | 0   0   ...    2 bytes each, 0 = free
//! slots     -   -   a   b   c   -   -   -  | -   -   ...    T each
//! bounds    <= min(expiry of a, b, c)      | u64::MAX       per block or per group of 16 blocks
//! ```
//!
//! 1. *Tags.* The tag of an entry consists of the high 16 bits of the entry's hash, and is never 0.
//!    A lookup compares tags first, so it reads few other entries. The tag, scaled to the number of
//!    slots, is also the index of the entry's home slot. So the table can move an entry without
//!    reading its key.
//! 2. *Lookup.* A lookup probes the slots from the home slot of the tag on. The lookup ends at a
//!    slot with the same tag and the same key, or at a free slot.
//! 3. *Removal.* After the removal of an entry, the following entries move back to fill its slot,
//!    up to the next free slot. The table has no tombstones, so the entries of a full table can be
//!    replaced forever without growth of the table.
//! 4. *Growth.* The number of slots grows by half, until the table has room for the maximum number
//!    of entries. The load factor is at most 3/4. Entries keep their order, so growth reads and
//!    writes memory sequentially.
//! 5. *Expiry bounds.* [`ExpiryBounds`] contains a lower bound on the expiry times in each group of
//!    slots. From these bounds, a sweep knows without a scan which groups can contain expired
//!    entries.
//! 6. *Eviction.* An eviction removes the entry with the earliest expiry, which is in the block
//!    with the lowest bound.
//!
//! # Decisions
//!
//! * An insertion does not read the slot before it writes the entry, because the cache miss of a
//!   read took longer than the rest of the insertion. A lookup prefetches the home slot before it
//!   reads the tag, so that the cache misses of slot and tag overlap.
//! * A slot has 40 bytes. With slots of 32 bytes, calls for 100,000 subjects would be a tenth
//!   faster. But the state of a bucket does not fit into such a slot, because its debt and its time
//!   have 52 bits each.
//! * An eviction removes the state that expires first in the whole shard. An eviction that searched
//!   only the group of the new state was a sixth faster. But it evicted an eighth of the regular
//!   subjects in a flood of new subjects.

use std::mem;
use std::ops::Range;

use prefetch_index::prefetch_index;

use crate::expiry_bounds::{ExpiryBounds, MinExpiry, Scope};

const BLOCK: usize = 8;

/// The maximum load factor, in sixteenths.
const MAX_LOAD: usize = 12;

/// The functions with which the table reads the expiry of an entry and releases the resources of
/// the entry.
pub(crate) trait EntryInfo<T> {
    /// Returns the time at which the entry expires. If this time becomes earlier while the entry is
    /// in the table, the caller must call [`Table::expiry_changed`]. If the time becomes later, the
    /// table need not be notified.
    fn expires_at(&self, entry: &T) -> u64;

    /// Returns `true` if the entry uses heap memory outside the table. If the result changes while
    /// the entry is in the table, the caller must call [`Table::expiry_changed`].
    fn uses_heap(&self, entry: &T) -> bool;

    /// Releases the resources of an entry that a sweep has removed. The other functions that remove
    /// an entry return the entry, and do not call this function.
    fn on_removed(&mut self, entry: T);
}

/// A bounded hash table with expiry.
// The fields that a lookup reads are the first fields. The lock of the shard is stored before the
// table. So one cache line contains the lock and these fields.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table<T> {
    /// One tag per slot: 0 for a free slot, or the [`tag`] of the entry in the slot.
    tags: Box<[u16]>,
    /// The slots with their entries. A free slot contains `T::default()`.
    slots: Box<[T]>,
    len: u32,
    max_len: u32,
    bounds: ExpiryBounds,
    /// The group of slots that the next sweep visits.
    sweep_cursor: u32,
    /// The block of slots at which the next eviction begins to search for the lowest expiry bound.
    /// Each eviction moves this cursor by one block.
    evict_cursor: u32,
}

impl<T: Default> Table<T> {
    /// Creates a table for at most `max_len` entries.
    ///
    /// `max_len` should be at most some ten thousands. With more entries, too many entries would
    /// have the same tag of 16 bits.
    pub(crate) fn new(max_len: usize) -> Self {
        Self {
            tags: Box::default(),
            slots: Box::default(),
            bounds: ExpiryBounds::default(),
            len: 0,
            max_len: u32::try_from(max_len).unwrap_or(u32::MAX),
            sweep_cursor: 0,
            evict_cursor: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn max_len(&self) -> usize {
        self.max_len as usize
    }

    /// Returns the number of bytes that the table uses, without the heap bytes of its entries.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_for(self.slots.len()) + self.bounds.bytes()
    }

    /// Returns an upper bound on [`bytes`](Self::bytes) for a table with at most `max_len` entries.
    pub(crate) fn max_bytes(max_len: usize) -> usize {
        let slots = max_slots(max_len);
        Self::bytes_for(slots) + ExpiryBounds::max_bytes(slots.div_ceil(BLOCK))
    }

    fn bytes_for(slots: usize) -> usize {
        slots * (size_of::<u16>() + size_of::<T>())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let used = self.slots.iter().zip(&self.tags).filter(|(_, tag)| **tag != 0);
        used.map(|(entry, _)| entry)
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.slots.get(index)
    }

    /// Returns the entry at `index`, so that the caller can change it. If the changed entry expires
    /// earlier, the caller must call [`expiry_changed`](Self::expiry_changed).
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)
    }

    /// Returns the index of the first entry that has the tag for `hash` and for which `is_match`
    /// returns `true`.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is_match: impl Fn(&T) -> bool) -> Option<usize> {
        let wanted = tag(hash);
        let mut index = self.home_slot(wanted);
        // An entry is stored at its home slot or shortly after. A prefetch of the home slot makes
        // the cache misses of tag and entry overlap.
        prefetch_index(&*self.slots, index);
        loop {
            // A table that never contained an entry has no slots and no tags. In this case, `get`
            // returns `None`.
            match *self.tags.get(index)? {
                0 => return None,
                tag if tag == wanted && self.get(index).is_some_and(&is_match) => {
                    return Some(index);
                }
                _ => index = self.next_slot(index),
            }
        }
    }

    /// Prefetches the expiry bound that the insertion of an entry with this hash will write, but
    /// not the slot of the entry.
    #[inline]
    pub(crate) fn prefetch_insert(&self, hash: u64) {
        self.bounds.prefetch(self.home_slot(tag(hash)) / BLOCK);
    }

    /// Inserts an entry. The table must not be full, and must not contain an entry with the same
    /// key.
    pub(crate) fn insert(&mut self, hash: u64, entry: T, info: &impl EntryInfo<T>) {
        if (self.len() + 1) * 16 > self.slots.len() * MAX_LOAD {
            self.grow();
        }
        let (tag, expiry) = (tag(hash), expiry_of(&entry, info));
        self.occupy(self.free_slot_from(self.home_slot(tag)), tag, entry, expiry);
    }

    /// Removes the entry at `index`. Other entries possibly move to other slots.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        if self.tags[index] == 0 {
            return None;
        }
        let removed = mem::take(&mut self.slots[index]);
        self.len -= 1;
        let (mut hole, mut at) = (index, self.next_slot(index));
        while self.tags[at] != 0 {
            let home = self.home_slot(self.tags[at]);
            // The entry at `at` moves to the free slot `hole`, unless its home slot is after
            // `hole`.
            if self.probe_distance(home, at) >= self.probe_distance(hole, at) {
                self.tags[hole] = self.tags[at];
                let entry = mem::take(&mut self.slots[at]);
                self.fill(hole, entry);
                if hole / BLOCK != at / BLOCK {
                    self.bounds.lower(hole / BLOCK, self.bounds.block(at / BLOCK));
                }
                hole = at;
            }
            at = self.next_slot(at);
        }
        self.tags[hole] = 0;
        Some(removed)
    }

    /// Updates the expiry bounds after a change of the entry at `index`. The caller must call this
    /// function if the entry possibly expires earlier.
    pub(crate) fn expiry_changed(&mut self, index: usize, info: &impl EntryInfo<T>) {
        self.bounds.lower(index / BLOCK, expiry_of(&self.slots[index], info));
    }

    /// Removes the expired entries of the group at the sweep cursor, and moves the cursor to the
    /// next group.
    #[inline]
    pub(crate) fn sweep_step(&mut self, now: u64, info: &mut impl EntryInfo<T>) {
        let group = self.sweep_cursor as usize;
        if self.bounds.may_have_expired(group, now) {
            self.sweep_group(group, now, info);
        }
        self.sweep_cursor =
            if group + 1 < self.bounds.groups() { self.sweep_cursor + 1 } else { 0 };
        if self.bounds.has_block_bounds() && self.len < self.max_len / 2 {
            self.bounds.drop_block_bounds();
        }
    }

    /// Removes at least one expired entry, unless the table contains no expired entry.
    pub(crate) fn sweep_any(&mut self, now: u64, info: &mut impl EntryInfo<T>) {
        let before = self.len;
        while self.len == before {
            let Some(group) = self.bounds.first_expired_group(now) else { return };
            // `sweep_group` either removes an entry, or raises the expiry bound of the group above
            // `now`. So this loop ends.
            self.sweep_group(group, now, info);
        }
    }

    /// Returns a lower bound on the expiry times of all entries, or of the entries on the heap
    /// (`Scope::HeapOnly`). Returns `u64::MAX` if there are no such entries.
    pub(crate) fn min_expiry(&self, scope: Scope) -> u64 {
        self.bounds.min(scope)
    }

    /// Removes the entry with the earliest expiry among the entries for which `may_evict` returns
    /// `true`.
    pub(crate) fn evict_earliest(
        &mut self,
        scope: Scope,
        may_evict: impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> Option<T> {
        if !self.bounds.has_block_bounds() {
            self.add_block_bounds(info);
        }
        let may_evict =
            |entry: &T| (scope == Scope::All || info.uses_heap(entry)) && may_evict(entry);
        let entry = match self.earliest_by_bounds(scope, &may_evict, info) {
            Some(index) => self.remove(index),
            None => {
                let index = self.earliest_by_scan(scope, &may_evict, info)?;
                let entry = self.remove(index);
                self.refresh_bound(index / BLOCK, info);
                entry
            }
        };
        self.prefetch_next_victim(scope);
        entry
    }

    /// Prefetches the block of slots from which the next eviction will remove an entry, because a
    /// full table will evict again soon.
    fn prefetch_next_victim(&self, scope: Scope) {
        if let Some((_, block)) = self.bounds.min_block(scope, self.evict_cursor as usize) {
            self.block(block).for_each(|index| prefetch_index(&*self.slots, index));
        }
    }

    /// Finds the entry with the earliest expiry in the block of slots with the lowest expiry bound.
    /// Raises the bound of the block to the earliest expiry of the block's other entries. Returns
    /// `None` if the entry that expires first must not be evicted.
    fn earliest_by_bounds(
        &mut self,
        scope: Scope,
        may_evict: &impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> Option<usize> {
        loop {
            // If several blocks of slots have the lowest expiry bound, the search uses the first
            // such block at or after the eviction cursor.
            let (bound, block) = self.bounds.min_block(scope, self.evict_cursor as usize)?;
            let BlockScan { earliest, others } = self.scan_block(block, may_evict, info);
            match earliest {
                Some((index, expiry)) if expiry.in_scope(scope) == bound => {
                    self.bounds.set_block(block, others);
                    self.advance_evict_cursor();
                    return Some(index);
                }
                _ => {
                    // The expiry bound was lower than the earliest expiry in the block, or the
                    // entry that expires first must not be evicted. The search ends only in the
                    // second case.
                    let all = earliest.map_or(others, |(_, expiry)| others.min(expiry));
                    self.bounds.set_block(block, all);
                    if all.in_scope(scope) == bound {
                        return None;
                    }
                }
            }
        }
    }

    /// Moves the eviction cursor by one block, regardless of the block from which an entry was
    /// evicted.
    // If many entries have the same expiry time, the moving cursor spreads evictions evenly over
    // the table. A search that always began at the first block would empty the front of the table
    // while the rest filled up. A cursor that moved to the block after the evicted entry would also
    // be wrong: evictions would remove entries after long runs of used slots. The runs would grow,
    // because entries are inserted at the ends of long runs.
    fn advance_evict_cursor(&mut self) {
        let next = self.evict_cursor + 1;
        self.evict_cursor = if (next as usize) < self.bounds.blocks() { next } else { 0 };
    }

    /// Scans the whole table for the entry that expires first among the entries for which
    /// `may_evict` returns `true`.
    fn earliest_by_scan(
        &self,
        scope: Scope,
        may_evict: &impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> Option<usize> {
        let candidates = (0..self.bounds.blocks()).filter_map(|block| {
            let (index, expiry) = self.scan_block(block, may_evict, info).earliest?;
            Some((expiry.in_scope(scope), index))
        });
        candidates.min().map(|(_, index)| index)
    }

    fn scan_block(
        &self,
        block: usize,
        may_evict: &impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> BlockScan {
        let (mut earliest, mut others): (Option<(usize, MinExpiry)>, _) = (None, MinExpiry::NEVER);
        for index in self.block(block) {
            let Some(entry) = self.entry(index) else { continue };
            let mut other = expiry_of(entry, info);
            if earliest.is_none_or(|(_, expiry)| other.all < expiry.all) && may_evict(entry) {
                let before = earliest.replace((index, other));
                other = before.map_or(MinExpiry::NEVER, |(_, before)| before);
            }
            others = others.min(other);
        }
        BlockScan { earliest, others }
    }

    /// Removes the expired entries of a group of slots. Afterwards, the expiry bounds of the group
    /// are later than `now`.
    fn sweep_group(&mut self, group: usize, now: u64, info: &mut impl EntryInfo<T>) {
        let (mut all, blocks) = (MinExpiry::NEVER, self.bounds.blocks_of_group(group));
        for block in blocks.clone() {
            if self.bounds.block(block).all <= now {
                self.sweep_block(block, now, info);
            }
        }
        if self.bounds.has_block_bounds() {
            return;
        }
        for block in blocks {
            all = all.min(self.min_expiry_of_block(block, info));
        }
        self.bounds.set_group(group, all);
    }

    fn sweep_block(&mut self, block: usize, now: u64, info: &mut impl EntryInfo<T>) {
        for index in self.block(block) {
            // The removal of an entry possibly moves another entry into the free slot. That entry
            // has possibly expired too, so the slot is checked again.
            while self.entry(index).is_some_and(|entry| info.expires_at(entry) <= now) {
                if let Some(entry) = self.remove(index) {
                    info.on_removed(entry);
                }
            }
        }
        if self.bounds.has_block_bounds() {
            self.refresh_bound(block, info);
        }
    }

    fn min_expiry_of_block(&self, block: usize, info: &impl EntryInfo<T>) -> MinExpiry {
        self.scan_block(block, &|_| false, info).others
    }

    /// Sets the expiry bound of a block of slots to the earliest expiry of the block's entries.
    fn refresh_bound(&mut self, block: usize, info: &impl EntryInfo<T>) {
        let all = self.min_expiry_of_block(block, info);
        self.bounds.set_block(block, all);
    }

    fn add_block_bounds(&mut self, info: &impl EntryInfo<T>) {
        self.bounds.add_block_bounds();
        for block in 0..self.bounds.blocks() {
            self.refresh_bound(block, info);
        }
    }

    /// Returns the entry at `index`, or `None` if the slot is free.
    #[inline]
    fn entry(&self, index: usize) -> Option<&T> {
        self.slots.get(index).filter(|_| self.tags[index] != 0)
    }

    fn block(&self, block: usize) -> Range<usize> {
        block * BLOCK..((block + 1) * BLOCK).min(self.slots.len())
    }

    /// Increases the number of slots by half, and moves all entries to the new slots.
    fn grow(&mut self) {
        let slots = (self.slots.len() + self.slots.len() / 2).clamp(8, max_slots(self.max_len()));
        let (tags, old) = (mem::take(&mut self.tags), mem::take(&mut self.slots));
        let bounds = mem::take(&mut self.bounds);
        self.tags = vec![0; slots].into();
        self.slots = std::iter::repeat_with(T::default).take(slots).collect();
        self.bounds = ExpiryBounds::new(slots.div_ceil(BLOCK));
        (self.len, self.sweep_cursor, self.evict_cursor) = (0, 0, 0);
        // All new slots from the index `end` on are still free.
        let mut end = 0;
        for (index, (entry, tag)) in old.into_iter().zip(tags).enumerate() {
            if tag != 0 {
                let home = self.home_slot(tag);
                let slot = if home < end { self.free_slot_from(home) } else { home };
                end = end.max(slot + 1);
                // While the table grows, the expiry bound of the entry's old block is also a bound
                // for the entry. So the entry itself is not read.
                self.occupy(slot, tag, entry, bounds.block(index / BLOCK));
            }
        }
    }

    /// Returns the index of the first free slot at or after `index`. The table must have a free
    /// slot.
    #[inline]
    fn free_slot_from(&self, mut index: usize) -> usize {
        while self.tags[index] != 0 {
            index = self.next_slot(index);
        }
        index
    }

    /// Stores an entry and its tag in a free slot, and updates the expiry bounds.
    #[inline]
    fn occupy(&mut self, index: usize, tag: u16, entry: T, expiry: MinExpiry) {
        self.tags[index] = tag;
        self.bounds.lower(index / BLOCK, expiry);
        self.fill(index, entry);
        self.len += 1;
    }

    /// Writes an entry into a free slot, without dropping the previous value of the slot,
    /// `T::default()`.
    // A drop of the previous value would read the slot, and the slot is usually not in the cache.
    // This read took longer than the rest of an insertion.
    #[inline(always)]
    fn fill(&mut self, index: usize, entry: T) {
        mem::forget(mem::replace(&mut self.slots[index], entry));
    }

    /// Returns the slot at which probing for a tag begins: the tag scaled to the number of slots.
    #[inline(always)]
    fn home_slot(&self, tag: u16) -> usize {
        (usize::from(tag) * self.slots.len()) >> u16::BITS
    }

    #[inline(always)]
    fn next_slot(&self, index: usize) -> usize {
        if index + 1 == self.slots.len() { 0 } else { index + 1 }
    }

    /// Returns the number of slots from the slot `from` to the slot `to`, in the direction in which
    /// a lookup probes.
    fn probe_distance(&self, from: usize, to: usize) -> usize {
        if from <= to { to - from } else { to + self.slots.len() - from }
    }
}

struct BlockScan {
    /// The index and the expiry of the entry that expires first among the entries of the block that
    /// can be evicted.
    earliest: Option<(usize, MinExpiry)>,
    /// The minimum expiry of all other entries of the block, including the entries that must not be
    /// evicted.
    others: MinExpiry,
}

#[inline]
fn expiry_of<T>(entry: &T, info: &impl EntryInfo<T>) -> MinExpiry {
    MinExpiry::new(info.expires_at(entry), info.uses_heap(entry))
}

/// Returns the number of slots of a fully grown table for at most `max_len` entries.
fn max_slots(max_len: usize) -> usize {
    (max_len * 16).div_ceil(MAX_LOAD).max(8)
}

/// Returns the tag for a hash: the high 16 bits of the hash. The lowest bit of the tag is always
/// set, so that a tag is never 0.
#[inline(always)]
fn tag(hash: u64) -> u16 {
    let [.., low, high] = hash.to_le_bytes();
    u16::from_le_bytes([low, high]) | 1
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Default)]
    struct Entry {
        key: u64,
        expires_at: u64,
    }

    struct Removed(Vec<Entry>);

    impl EntryInfo<Entry> for Removed {
        fn expires_at(&self, entry: &Entry) -> u64 {
            entry.expires_at
        }

        fn uses_heap(&self, entry: &Entry) -> bool {
            entry.key.is_multiple_of(3)
        }

        fn on_removed(&mut self, entry: Entry) {
            self.0.push(entry);
        }
    }

    /// Returns one of four hashes. The home slots for these hashes are near both ends of the table.
    /// So runs of entries are long, and continue from the last slot to the first slot.
    fn hash_of_key(key: u64) -> u64 {
        [0, 1 << 60, u64::MAX, u64::MAX - (1 << 61)][usize::try_from(key % 4).unwrap()]
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, u64),
        Remove(u64),
        ChangeExpiry(u64, u64),
        SweepGroup(u64),
        SweepAny(u64),
        EvictEarliest(bool, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (key, time) = (|| 0..40_u64, || 0..20_u64);
        prop_oneof![
            4 => (key(), time()).prop_map(|(key, at)| Step::Insert(key, at)),
            2 => key().prop_map(Step::Remove),
            2 => (key(), time()).prop_map(|(key, at)| Step::ChangeExpiry(key, at)),
            1 => time().prop_map(Step::SweepGroup),
            1 => time().prop_map(Step::SweepAny),
            2 => (any::<bool>(), key()).prop_map(|(heap_only, key)| Step::EvictEarliest(heap_only, key)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_table_holds_what_a_map_holds(steps in prop::collection::vec(step(), 1..120)) {
            let mut table = Table::new(30);
            let mut model: HashMap<u64, u64> = HashMap::new();
            let mut info = Removed(Vec::new());
            for step in steps {
                match step {
                    Step::Insert(key, expires_at) => {
                        if model.len() < table.max_len() && !model.contains_key(&key) {
                            table.insert(hash_of_key(key), Entry { key, expires_at }, &info);
                            model.insert(key, expires_at);
                        }
                    }
                    Step::Remove(key) => {
                        let index = table.find(hash_of_key(key), |entry| entry.key == key);
                        prop_assert_eq!(index.is_some(), model.remove(&key).is_some());
                        if let Some(index) = index {
                            prop_assert_eq!(table.remove(index).unwrap().key, key);
                        }
                    }
                    Step::ChangeExpiry(key, expires_at) => {
                        if let Some(index) = table.find(hash_of_key(key), |t| t.key == key) {
                            table.get_mut(index).unwrap().expires_at = expires_at;
                            table.expiry_changed(index, &info);
                            model.insert(key, expires_at);
                        }
                    }
                    Step::SweepGroup(now) => {
                        table.sweep_step(now, &mut info);
                        for removed in info.0.drain(..) {
                            assert!(removed.expires_at <= now);
                            assert!(model.remove(&removed.key).is_some());
                        }
                    }
                    Step::SweepAny(now) => {
                        let any_expired = model.values().any(|&at| at <= now);
                        let before = model.len();
                        table.sweep_any(now, &mut info);
                        for removed in info.0.drain(..) {
                            assert!(removed.expires_at <= now);
                            assert!(model.remove(&removed.key).is_some());
                        }
                        prop_assert_eq!(model.len() < before, any_expired);
                    }
                    Step::EvictEarliest(heap_only, pinned) => {
                        let scope = if heap_only { Scope::HeapOnly } else { Scope::All };
                        let may_evict = |key: u64| key != pinned && (!heap_only || key.is_multiple_of(3));
                        let evicted = table.evict_earliest(scope, |entry| entry.key != pinned, &info);
                        let left = model.iter().filter(|(key, _)| may_evict(**key));
                        let expected = left.map(|(_, &at)| at).min();
                        prop_assert_eq!(evicted.as_ref().map(|entry| entry.expires_at), expected);
                        if let Some(entry) = evicted {
                            prop_assert!(may_evict(entry.key));
                            prop_assert_eq!(model.remove(&entry.key), expected);
                        }
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for (&key, &expires_at) in &model {
                    let found = table.find(hash_of_key(key), |entry| entry.key == key).unwrap();
                    prop_assert_eq!(table.get(found), Some(&Entry { key, expires_at }));
                    let bound = table.bounds.block(found / BLOCK);
                    prop_assert!(bound.all <= expires_at);
                    prop_assert!(!key.is_multiple_of(3) || bound.heap_only <= expires_at);

                }
                prop_assert!(table.bytes() <= Table::<Entry>::max_bytes(30));
            }
        }
    }

    /// Regression test: the states of an aligned window have the same expiry time. Among such
    /// entries, an eviction always removed the first entry of the table. So the front of the table
    /// became empty while the rest filled up, until a lookup probed most of the table.
    ///
    /// A later version had another defect: an eviction removed the entry after the previously
    /// evicted entry. If every second entry expired earlier than the others, the evictions removed
    /// entries after long runs of used slots, and the runs grew.
    #[test]
    fn churning_a_full_table_of_equal_expiries_keeps_its_runs_short() {
        let hash: fn(u64) -> u64 = |key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for expiries in [1, 2] {
            let info = Removed(Vec::new());
            let mut table = Table::new(2_000);
            for key in 0..50_000 {
                if table.len() == table.max_len() {
                    table.evict_earliest(Scope::All, |_| true, &info).unwrap();
                }
                let entry = Entry { key, expires_at: 7 + key % expiries };
                table.insert(hash(key), entry, &info);
            }
            let max_run = table.tags.split(|&tag| tag == 0).map(<[u16]>::len).max().unwrap();
            let slots = table.tags.len();
            assert!(max_run < 200, "{max_run} consecutive slots are in use, of {slots}");
        }
    }

    #[test]
    fn blocks_have_bounds_from_the_first_eviction_until_the_table_is_half_empty() {
        let mut table = Table::new(1_000);
        let mut info = Removed(Vec::new());
        for key in 0..1_000 {
            let hash = key << 54 | key;
            table.insert(hash, Entry { key, expires_at: 1 + key % 2 }, &info);
            table.sweep_step(0, &mut info);
        }
        assert!(!table.bounds.has_block_bounds());
        table.evict_earliest(Scope::All, |_| true, &info).unwrap();
        table.sweep_step(0, &mut info);
        assert!(table.bounds.has_block_bounds());
        for _ in 0..table.bounds.groups() {
            table.sweep_step(1, &mut info);
        }
        assert_eq!(table.len(), 500);
        assert!(table.bounds.has_block_bounds());
        table.evict_earliest(Scope::All, |_| true, &info).unwrap();
        table.sweep_step(1, &mut info);
        assert!(!table.bounds.has_block_bounds());
    }

    #[test]
    fn a_full_cycle_of_sweep_steps_removes_all_expired_entries() {
        let (mut table, mut info) = (Table::new(1_000), Removed(Vec::new()));
        for key in 0..1_000 {
            table.insert(hash_of_key(key), Entry { key, expires_at: key % 2 }, &info);
        }
        for _ in 0..table.bounds.groups() {
            table.sweep_step(0, &mut info);
        }
        assert_eq!(table.len(), 500);
    }
}
