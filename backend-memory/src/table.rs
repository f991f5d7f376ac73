//! A hash table with a hard bound, that is swept a little at a time.
//!
//! Open addressing with linear probing. Two bytes per slot, of the hash, tell most misses from a hit
//! without touching the entry, and also where the search for the entry begins: so entries are moved
//! without being looked at. Removing shifts entries back instead of leaving tombstones, so a table at its
//! bound can be churned for ever without growing. For each group of slots there is a lower bound on
//! the times at which its entries recover (and for each block of it, once the table had to give something
//! up), so that sweeping looks only where something may be found, and "is there any recovered entry at
//! all" is answered without a scan.

use std::mem;
use std::ops::Range;

use prefetch_index::prefetch_index;

use crate::expiry_bounds::{ExpiryBounds, MinExpiry, Scope};

/// Slots in a block.
const BLOCK: usize = 8;

/// Knows what items mean, which they do not say themselves.
pub(crate) trait EntryInfo<T> {
    /// From when on the item no longer matters. May move on while the item is in the table, and back
    /// only through [`Table::touched`].
    fn expires_at(&self, item: &T) -> u64;

    /// Whether the item keeps something outside of the table. Does not change while it is in it,
    /// unless [`Table::touched`] is told.
    fn uses_heap(&self, item: &T) -> bool;

    /// The item has recovered, and was removed.
    fn on_removed(&mut self, item: T);
}

/// What finding something reads comes first: with the lock before it, that is one cache line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table<T> {
    /// 0 for a free slot, else [`tag`] of the hash of its item.
    tags: Box<[u16]>,
    /// In a free slot lies a default.
    slots: Box<[T]>,
    len: u32,
    /// The most items that there may ever be.
    max_len: u32,
    bounds: ExpiryBounds,
    /// The blocks to sweep next.
    sweep_cursor: u32,
    /// The block that is the first to give something up, of those that might.
    evict_cursor: u32,
}

impl<T: Default> Table<T> {
    /// A table of at most so many items, of which there may be some ten thousands: beyond, tags would no
    /// longer tell slots apart.
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

    /// The most items that there may be.
    pub(crate) fn max_len(&self) -> usize {
        self.max_len as usize
    }

    /// Bytes that the table takes, apart from what its items keep elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.slots.len()) + self.bounds.bytes()
    }

    /// The most bytes that a table of this bound takes.
    pub(crate) fn max_bytes(max_len: usize) -> usize {
        let slots = slots_for(max_len);
        Self::bytes_of(slots) + ExpiryBounds::max_bytes(slots.div_ceil(BLOCK))
    }

    fn bytes_of(slots: usize) -> usize {
        slots * (size_of::<u16>() + size_of::<T>())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let taken = self.slots.iter().zip(&self.tags).filter(|(_, tag)| **tag != 0);
        taken.map(|(item, _)| item)
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.slots.get(index)
    }

    /// Changes an item. Afterwards call [`touched`](Self::touched) if it may recover earlier now.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)
    }

    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        let wanted = tag(hash);
        let mut index = self.home(wanted);
        // Its item is in its home, or soon after: so that it comes while the tag does, from elsewhere in
        // memory, and not only then.
        prefetch_index(&*self.slots, index);
        loop {
            // Before the first item there are no slots, and so no tags.
            match *self.tags.get(index)? {
                0 => return None,
                tag if tag == wanted && self.get(index).is_some_and(&is) => return Some(index),
                _ => index = self.next(index),
            }
        }
    }

    /// An item with this hash is about to be inserted: what else that looks at is asked for already.
    #[inline]
    pub(crate) fn expect(&self, hash: u64) {
        self.bounds.expect(self.home(tag(hash)) / BLOCK);
    }

    /// Inserts an item that is not there yet. There must be room.
    pub(crate) fn insert(&mut self, hash: u64, item: T, info: &impl EntryInfo<T>) {
        if (self.len() + 1) * 16 > self.slots.len() * MAX_LOAD {
            self.grow();
        }
        let earliest = expiry_of(&item, info);
        self.place(tag(hash), item, earliest);
    }

    /// Removes the item at `index`. Others may move.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        if self.tags[index] == 0 {
            return None;
        }
        let removed = mem::take(&mut self.slots[index]);
        self.len -= 1;
        let (mut hole, mut at) = (index, self.next(index));
        while self.tags[at] != 0 {
            let home = self.home(self.tags[at]);
            // The item may fill the hole unless its home lies after the hole, on the way to it.
            if self.probe_distance(home, at) >= self.probe_distance(hole, at) {
                self.tags[hole] = self.tags[at];
                let item = mem::take(&mut self.slots[at]);
                self.fill(hole, item);
                if hole / BLOCK != at / BLOCK {
                    self.bounds.lower(hole / BLOCK, self.bounds.of(at / BLOCK));
                }
                hole = at;
            }
            at = self.next(at);
        }
        self.tags[hole] = 0;
        Some(removed)
    }

    /// Says that the item at `index` may recover earlier than before.
    pub(crate) fn expiry_changed(&mut self, index: usize, info: &impl EntryInfo<T>) {
        self.bounds.lower(index / BLOCK, expiry_of(&self.slots[index], info));
    }

    /// Looks at one more group of blocks, and removes what has recovered there.
    #[inline]
    pub(crate) fn sweep_step(&mut self, now: u64, info: &mut impl EntryInfo<T>) {
        let sweep_cursor = self.sweep_cursor as usize;
        if self.bounds.group_may_expire(sweep_cursor, now) {
            self.sweep_group(sweep_cursor, now, info);
        }
        self.sweep_cursor =
            if sweep_cursor + 1 < self.bounds.groups() { self.sweep_cursor + 1 } else { 0 };
        if self.bounds.has_block_bounds() && self.len < self.max_len / 2 {
            self.bounds.drop_block_bounds();
        }
    }

    /// Removes at least one recovered item, unless there is none in the whole table.
    pub(crate) fn sweep_any(&mut self, now: u64, info: &mut impl EntryInfo<T>) {
        let before = self.len;
        while self.len == before {
            let Some(group) = self.bounds.first_expired_group(now) else { return };
            // Finds something, or learns that there is nothing: the bound of the group rises.
            self.sweep_group(group, now, info);
        }
    }

    /// No item recovers before this time; `u64::MAX` if there is none.
    pub(crate) fn earliest(&self, scope: Scope) -> u64 {
        self.bounds.earliest(scope)
    }

    /// Removes the item that recovers first of those that may go.
    pub(crate) fn evict_earliest(
        &mut self,
        scope: Scope,
        may_go: impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> Option<T> {
        if !self.bounds.has_block_bounds() {
            self.add_block_bounds(info);
        }
        let may_go = |item: &T| (scope == Scope::All || info.uses_heap(item)) && may_go(item);
        let item = match self.earliest_by_bounds(scope, &may_go, info) {
            Some(index) => self.remove(index),
            None => {
                let index = self.scan_earliest(scope, &may_go, info)?;
                let item = self.remove(index);
                self.refresh(index / BLOCK, info);
                item
            }
        };
        self.prefetch_next_victim(scope);
        item
    }

    /// Who had to give something up will have to again: where that is looked for then comes to the cache
    /// meanwhile.
    fn prefetch_next_victim(&self, scope: Scope) {
        if let Some((_, block)) = self.bounds.min_block(scope, self.evict_cursor as usize) {
            self.block(block).for_each(|index| prefetch_index(&*self.slots, index));
        }
    }

    /// The first item of the block with the lowest bound, which is out of that bound already. `None`
    /// where it may not go.
    fn earliest_by_bounds(
        &mut self,
        scope: Scope,
        may_go: &impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> Option<usize> {
        loop {
            // Of equals the next in turn: if it were always the first, the others would fill up.
            let (bound, block) = self.bounds.min_block(scope, self.evict_cursor as usize)?;
            let BlockScan { first, others } = self.scan_block(block, may_go, info);
            match first {
                Some((index, item)) if item.of(scope) == bound => {
                    self.bounds.set(block, others);
                    self.evict_cursor = u32::try_from(block + 1).unwrap_or(0);
                    return Some(index);
                }
                _ => {
                    // A bound that was too low rises now.
                    let all = first.map_or(others, |(_, item)| others.and(item));
                    self.bounds.set(block, all);
                    if all.of(scope) == bound {
                        return None;
                    }
                }
            }
        }
    }

    /// The same where the very first may not go.
    fn scan_earliest(
        &self,
        scope: Scope,
        may_go: &impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> Option<usize> {
        let firsts = (0..self.bounds.blocks()).filter_map(|block| {
            let (index, item) = self.scan_block(block, may_go, info).first?;
            Some((item.of(scope), index))
        });
        firsts.min().map(|(_, index)| index)
    }

    /// Which item of a block recovers first of those that may go, and when the others do.
    fn scan_block(
        &self,
        block: usize,
        may_go: &impl Fn(&T) -> bool,
        info: &impl EntryInfo<T>,
    ) -> BlockScan {
        let (mut first, mut others): (Option<(usize, MinExpiry)>, _) = (None, MinExpiry::NEVER);
        for index in self.block(block) {
            let Some(item) = self.taken(index) else { continue };
            let mut other = expiry_of(item, info);
            if first.is_none_or(|(_, first)| other.all < first.all) && may_go(item) {
                let before = first.replace((index, other));
                other = before.map_or(MinExpiry::NEVER, |(_, before)| before);
            }
            others = others.and(other);
        }
        BlockScan { first, others }
    }

    /// Afterwards no bound in the group is at `now` or before it.
    fn sweep_group(&mut self, group: usize, now: u64, info: &mut impl EntryInfo<T>) {
        let (mut all, blocks) = (MinExpiry::NEVER, self.bounds.blocks_of_group(group));
        for block in blocks.clone() {
            if self.bounds.of(block).all <= now {
                self.sweep_block(block, now, info);
            }
        }
        if self.bounds.has_block_bounds() {
            return;
        }
        for block in blocks {
            all = all.and(self.scan_block(block, &|_| false, info).others);
        }
        self.bounds.set_group(group, all);
    }

    fn sweep_block(&mut self, block: usize, now: u64, info: &mut impl EntryInfo<T>) {
        for index in self.block(block) {
            // Removing shifts another item in, which may have recovered too.
            while self.taken(index).is_some_and(|item| info.expires_at(item) <= now) {
                if let Some(item) = self.remove(index) {
                    info.on_removed(item);
                }
            }
        }
        if self.bounds.has_block_bounds() {
            self.refresh(block, info);
        }
    }

    fn refresh(&mut self, block: usize, info: &impl EntryInfo<T>) {
        let all = self.scan_block(block, &|_| false, info).others;
        self.bounds.set(block, all);
    }

    /// Learns when each block recovers.
    fn add_block_bounds(&mut self, info: &impl EntryInfo<T>) {
        self.bounds.add_block_bounds();
        for block in 0..self.bounds.blocks() {
            self.refresh(block, info);
        }
    }

    /// The item at `index`, unless the slot is free.
    #[inline]
    fn taken(&self, index: usize) -> Option<&T> {
        self.slots.get(index).filter(|_| self.tags[index] != 0)
    }

    fn block(&self, block: usize) -> Range<usize> {
        block * BLOCK..((block + 1) * BLOCK).min(self.slots.len())
    }

    /// Items keep their order, so this reads one end of the memory to the other, and so it writes.
    fn grow(&mut self) {
        let slots = (self.slots.len() + self.slots.len() / 2).clamp(8, slots_for(self.max_len()));
        let (tags, old) = (mem::take(&mut self.tags), mem::take(&mut self.slots));
        let bounds = mem::take(&mut self.bounds);
        self.tags = vec![0; slots].into();
        self.slots = std::iter::repeat_with(T::default).take(slots).collect();
        self.bounds = ExpiryBounds::new(slots.div_ceil(BLOCK));
        (self.len, self.sweep_cursor, self.evict_cursor) = (0, 0, 0);
        // From here on all is free.
        let mut rest = 0;
        for (index, (item, tag)) in old.into_iter().zip(tags).enumerate() {
            if tag != 0 {
                let home = self.home(tag);
                let place = if home < rest { self.free_from(home) } else { home };
                rest = rest.max(place + 1);
                // What was a bound of all its block is a bound of the item too.
                self.put(place, tag, item, bounds.of(index / BLOCK));
            }
        }
    }

    fn place(&mut self, tag: u16, item: T, earliest: MinExpiry) {
        self.put(self.free_from(self.home(tag)), tag, item, earliest);
    }

    /// The first free slot from here on, of which there is one.
    #[inline]
    fn free_from(&self, mut index: usize) -> usize {
        while self.tags[index] != 0 {
            index = self.next(index);
        }
        index
    }

    #[inline]
    fn put(&mut self, index: usize, tag: u16, item: T, earliest: MinExpiry) {
        self.tags[index] = tag;
        self.bounds.lower(index / BLOCK, earliest);
        self.fill(index, item);
        self.len += 1;
    }

    /// Puts an item into a free slot. Were what is there dropped, it would be read first, and that takes
    /// longer than all the rest, as nobody has looked at it for long.
    #[inline(always)]
    fn fill(&mut self, index: usize, item: T) {
        mem::forget(mem::replace(&mut self.slots[index], item));
    }

    /// The slot where the search for a tag begins: the tag scaled to the number of slots.
    #[inline(always)]
    fn home(&self, tag: u16) -> usize {
        (usize::from(tag) * self.slots.len()) >> u16::BITS
    }

    #[inline(always)]
    fn next(&self, index: usize) -> usize {
        if index + 1 == self.slots.len() { 0 } else { index + 1 }
    }

    /// How many steps of probing lead from one slot to another.
    fn probe_distance(&self, from: usize, to: usize) -> usize {
        if from <= to { to - from } else { to + self.slots.len() - from }
    }
}

/// What there is in a block.
struct BlockScan {
    first: Option<(usize, MinExpiry)>,
    others: MinExpiry,
}

#[inline]
fn expiry_of<T>(item: &T, info: &impl EntryInfo<T>) -> MinExpiry {
    MinExpiry::one(info.expires_at(item), info.uses_heap(item))
}

/// At most 12 of 16 slots are taken.
const MAX_LOAD: usize = 12;

fn slots_for(items: usize) -> usize {
    (items * 16).div_ceil(MAX_LOAD).max(8)
}

/// The high bits, but never 0.
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
    struct Thing {
        key: u64,
        expires_at: u64,
    }

    /// Remembers which are gone.
    struct Things(Vec<Thing>);

    impl EntryInfo<Thing> for Things {
        fn expires_at(&self, thing: &Thing) -> u64 {
            thing.expires_at
        }

        fn uses_heap(&self, thing: &Thing) -> bool {
            thing.key.is_multiple_of(3)
        }

        fn on_removed(&mut self, thing: Thing) {
            self.0.push(thing);
        }
    }

    /// Few different hashes, near both ends of the table, so that runs are long and wrap around.
    fn hash_of_key(key: u64) -> u64 {
        [0, 1 << 60, u64::MAX, u64::MAX - (1 << 61)][usize::try_from(key % 4).unwrap()]
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, u64),
        Remove(u64),
        Move(u64, u64),
        SweepOn(u64),
        SweepAny(u64),
        Soonest(bool, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (key, time) = (|| 0..40_u64, || 0..20_u64);
        prop_oneof![
            4 => (key(), time()).prop_map(|(key, at)| Step::Insert(key, at)),
            2 => key().prop_map(Step::Remove),
            2 => (key(), time()).prop_map(|(key, at)| Step::Move(key, at)),
            1 => time().prop_map(Step::SweepOn),
            1 => time().prop_map(Step::SweepAny),
            2 => (any::<bool>(), key()).prop_map(|(heap_only, key)| Step::Soonest(heap_only, key)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_table_holds_what_a_map_holds(steps in prop::collection::vec(step(), 1..120)) {
            let mut table = Table::new(30);
            let mut model: HashMap<u64, u64> = HashMap::new();
            let mut things = Things(Vec::new());
            for step in steps {
                match step {
                    Step::Insert(key, expires_at) => {
                        if model.len() < table.max_len() && !model.contains_key(&key) {
                            table.insert(hash_of_key(key), Thing { key, expires_at }, &things);
                            model.insert(key, expires_at);
                        }
                    }
                    Step::Remove(key) => {
                        let index = table.find(hash_of_key(key), |thing| thing.key == key);
                        prop_assert_eq!(index.is_some(), model.remove(&key).is_some());
                        if let Some(index) = index {
                            prop_assert_eq!(table.remove(index).unwrap().key, key);
                        }
                    }
                    Step::Move(key, expires_at) => {
                        if let Some(index) = table.find(hash_of_key(key), |t| t.key == key) {
                            table.get_mut(index).unwrap().expires_at = expires_at;
                            table.expiry_changed(index, &things);
                            model.insert(key, expires_at);
                        }
                    }
                    Step::SweepOn(now) => {
                        table.sweep_step(now, &mut things);
                        for on_removed in things.0.drain(..) {
                            assert!(on_removed.expires_at <= now);
                            assert!(model.remove(&on_removed.key).is_some());
                        }
                    }
                    Step::SweepAny(now) => {
                        let some = model.values().any(|&at| at <= now);
                        let before = model.len();
                        table.sweep_any(now, &mut things);
                        for on_removed in things.0.drain(..) {
                            assert!(on_removed.expires_at <= now);
                            assert!(model.remove(&on_removed.key).is_some());
                        }
                        prop_assert_eq!(model.len() < before, some);
                    }
                    Step::Soonest(heap_only, pinned) => {
                        let scope = if heap_only { Scope::HeapOnly } else { Scope::All };
                        let may_go = |key: u64| key != pinned && (!heap_only || key.is_multiple_of(3));
                        let soonest = table.evict_earliest(scope, |thing| thing.key != pinned, &things);
                        let left = model.iter().filter(|(key, _)| may_go(**key));
                        let expected = left.map(|(_, &at)| at).min();
                        prop_assert_eq!(soonest.as_ref().map(|thing| thing.expires_at), expected);
                        if let Some(thing) = soonest {
                            prop_assert!(may_go(thing.key));
                            prop_assert_eq!(model.remove(&thing.key), expected);
                        }
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for (&key, &expires_at) in &model {
                    let found = table.find(hash_of_key(key), |thing| thing.key == key).unwrap();
                    prop_assert_eq!(table.get(found), Some(&Thing { key, expires_at }));
                    let bound = table.bounds.of(found / BLOCK);
                    prop_assert!(bound.all <= expires_at);
                    prop_assert!(!key.is_multiple_of(3) || bound.heap_only <= expires_at);

                }
                prop_assert!(table.bytes() <= Table::<Thing>::max_bytes(30));
            }
        }
    }

    /// When everything recovers at one time, as with aligned windows, giving up always the first of
    /// equals emptied the front of the table while the rest filled up, until searches went through
    /// most of it.
    #[test]
    fn a_full_table_in_which_all_are_equal_stays_even_while_it_is_churned() {
        let hash: fn(u64) -> u64 = |key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let things = Things(Vec::new());
        let mut table = Table::new(2_000);
        for key in 0..50_000 {
            if table.len() == table.max_len() {
                table.evict_earliest(Scope::All, |_| true, &things).unwrap();
            }
            let thing = Thing { key, expires_at: 7 };
            table.insert(hash(key), thing, &things);
        }
        let longest = table.tags.split(|&tag| tag == 0).map(<[u16]>::len).max().unwrap();
        assert!(longest < 200, "{longest} slots in a row are taken, of {}", table.tags.len());
    }

    #[test]
    fn blocks_have_bounds_from_when_one_had_to_go_until_half_of_all_have_gone() {
        let mut table = Table::new(1_000);
        let mut things = Things(Vec::new());
        for key in 0..1_000 {
            let hash = key << 54 | key;
            table.insert(hash, Thing { key, expires_at: 1 + key % 2 }, &things);
            table.sweep_step(0, &mut things);
        }
        assert!(!table.bounds.has_block_bounds());
        table.evict_earliest(Scope::All, |_| true, &things).unwrap();
        table.sweep_step(0, &mut things);
        assert!(table.bounds.has_block_bounds());
        for _ in 0..table.bounds.groups() {
            table.sweep_step(1, &mut things);
        }
        assert_eq!(table.len(), 500);
        assert!(table.bounds.has_block_bounds());
        table.evict_earliest(Scope::All, |_| true, &things).unwrap();
        table.sweep_step(1, &mut things);
        assert!(!table.bounds.has_block_bounds());
    }

    #[test]
    fn a_whole_lap_of_sweeping_leaves_nothing_that_has_recovered() {
        let (mut table, mut things) = (Table::new(1_000), Things(Vec::new()));
        for key in 0..1_000 {
            table.insert(hash_of_key(key), Thing { key, expires_at: key % 2 }, &things);
        }
        for _ in 0..table.bounds.groups() {
            table.sweep_step(0, &mut things);
        }
        assert_eq!(table.len(), 500);
    }
}
