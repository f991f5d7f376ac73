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

use crate::bounds::{Bounds, Earliest, Which};

/// Slots in a block.
const BLOCK: usize = 8;

/// Knows what items mean, which they do not say themselves.
pub(crate) trait Keeper<T> {
    /// From when on the item no longer matters. May move on while the item is in the table, and back
    /// only through [`Table::touched`].
    fn recovers_at(&self, item: &T) -> u64;

    /// Whether the item keeps something outside of the table. Does not change while it is in it,
    /// unless [`Table::touched`] is told.
    fn spills(&self, item: &T) -> bool;

    /// The item has recovered, and was removed.
    fn gone(&mut self, item: T);
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
    most: u32,
    bounds: Bounds,
    /// The blocks to sweep next.
    hand: u32,
    /// The block that is the first to give something up, of those that might.
    turn: u32,
}

impl<T: Default> Table<T> {
    /// A table of at most so many items, of which there may be some ten thousands: beyond, tags would no
    /// longer tell slots apart.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            tags: Box::default(),
            slots: Box::default(),
            bounds: Bounds::default(),
            len: 0,
            most: u32::try_from(most).unwrap_or(u32::MAX),
            hand: 0,
            turn: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The most items that there may be.
    pub(crate) fn most(&self) -> usize {
        self.most as usize
    }

    /// Bytes that the table takes, apart from what its items keep elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.slots.len()) + self.bounds.bytes()
    }

    /// The most bytes that a table of this bound takes.
    pub(crate) fn most_bytes(most: usize) -> usize {
        let slots = slots_for(most);
        Self::bytes_of(slots) + Bounds::most_bytes(slots.div_ceil(BLOCK))
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
    pub(crate) fn insert(&mut self, hash: u64, item: T, keeper: &impl Keeper<T>) {
        if (self.len() + 1) * 16 > self.slots.len() * LOAD {
            self.grow();
        }
        let earliest = earliest_of(&item, keeper);
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
            if self.way(home, at) >= self.way(hole, at) {
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
    pub(crate) fn touched(&mut self, index: usize, keeper: &impl Keeper<T>) {
        self.bounds.lower(index / BLOCK, earliest_of(&self.slots[index], keeper));
    }

    /// Looks at one more group of blocks, and removes what has recovered there.
    #[inline]
    pub(crate) fn sweep_on(&mut self, now: u64, keeper: &mut impl Keeper<T>) {
        let hand = self.hand as usize;
        if self.bounds.is_until(hand, now) {
            self.sweep_group(hand, now, keeper);
        }
        self.hand = if hand + 1 < self.bounds.groups() { self.hand + 1 } else { 0 };
        if self.bounds.is_fine() && self.len < self.most / 2 {
            self.bounds.coarsen();
        }
    }

    /// Removes at least one recovered item, unless there is none in the whole table.
    pub(crate) fn sweep_any(&mut self, now: u64, keeper: &mut impl Keeper<T>) {
        let before = self.len;
        while self.len == before {
            let Some(group) = self.bounds.first_until(now) else { return };
            // Finds something, or learns that there is nothing: the bound of the group rises.
            self.sweep_group(group, now, keeper);
        }
    }

    /// No item recovers before this time; `u64::MAX` if there is none.
    pub(crate) fn earliest(&self, which: Which) -> u64 {
        self.bounds.earliest(which)
    }

    /// Removes the item that recovers first of those that may go.
    pub(crate) fn take_soonest(
        &mut self,
        which: Which,
        may_go: impl Fn(&T) -> bool,
        keeper: &impl Keeper<T>,
    ) -> Option<T> {
        if !self.bounds.is_fine() {
            self.refine(keeper);
        }
        let may_go = |item: &T| (which == Which::All || keeper.spills(item)) && may_go(item);
        let item = match self.soonest_at_once(which, &may_go, keeper) {
            Some(index) => self.remove(index),
            None => {
                let index = self.soonest_by_and_by(which, &may_go, keeper)?;
                let item = self.remove(index);
                self.refresh(index / BLOCK, keeper);
                item
            }
        };
        self.ask_for_the_next(which);
        item
    }

    /// Who had to give something up will have to again: where that is looked for then comes to the cache
    /// meanwhile.
    fn ask_for_the_next(&self, which: Which) {
        if let Some((_, block)) = self.bounds.lowest(which, self.turn as usize) {
            self.block(block).for_each(|index| prefetch_index(&*self.slots, index));
        }
    }

    /// The first item of the block with the lowest bound, which is out of that bound already. `None`
    /// where it may not go.
    fn soonest_at_once(
        &mut self,
        which: Which,
        may_go: &impl Fn(&T) -> bool,
        keeper: &impl Keeper<T>,
    ) -> Option<usize> {
        loop {
            // Of equals the next in turn: if it were always the first, the others would fill up.
            let (bound, block) = self.bounds.lowest(which, self.turn as usize)?;
            let Seen { first, others } = self.look_at(block, may_go, keeper);
            match first {
                Some((index, item)) if item.of(which) == bound => {
                    self.bounds.set(block, others);
                    self.turn = u32::try_from(block + 1).unwrap_or(0);
                    return Some(index);
                }
                _ => {
                    // A bound that was too low rises now.
                    let all = first.map_or(others, |(_, item)| others.and(item));
                    self.bounds.set(block, all);
                    if all.of(which) == bound {
                        return None;
                    }
                }
            }
        }
    }

    /// The same where the very first may not go.
    fn soonest_by_and_by(
        &self,
        which: Which,
        may_go: &impl Fn(&T) -> bool,
        keeper: &impl Keeper<T>,
    ) -> Option<usize> {
        let firsts = (0..self.bounds.blocks()).filter_map(|block| {
            let (index, item) = self.look_at(block, may_go, keeper).first?;
            Some((item.of(which), index))
        });
        firsts.min().map(|(_, index)| index)
    }

    /// Which item of a block recovers first of those that may go, and when the others do.
    fn look_at(&self, block: usize, may_go: &impl Fn(&T) -> bool, keeper: &impl Keeper<T>) -> Seen {
        let (mut first, mut others): (Option<(usize, Earliest)>, _) = (None, Earliest::NEVER);
        for index in self.block(block) {
            let Some(item) = self.taken(index) else { continue };
            let mut other = earliest_of(item, keeper);
            if first.is_none_or(|(_, first)| other.all < first.all) && may_go(item) {
                let before = first.replace((index, other));
                other = before.map_or(Earliest::NEVER, |(_, before)| before);
            }
            others = others.and(other);
        }
        Seen { first, others }
    }

    /// Afterwards no bound in the group is at `now` or before it.
    fn sweep_group(&mut self, group: usize, now: u64, keeper: &mut impl Keeper<T>) {
        let (mut all, blocks) = (Earliest::NEVER, self.bounds.blocks_of_group(group));
        for block in blocks.clone() {
            if self.bounds.of(block).all <= now {
                self.sweep_block(block, now, keeper);
            }
        }
        if self.bounds.is_fine() {
            return;
        }
        for block in blocks {
            all = all.and(self.look_at(block, &|_| false, keeper).others);
        }
        self.bounds.set_group(group, all);
    }

    fn sweep_block(&mut self, block: usize, now: u64, keeper: &mut impl Keeper<T>) {
        for index in self.block(block) {
            // Removing shifts another item in, which may have recovered too.
            while self.taken(index).is_some_and(|item| keeper.recovers_at(item) <= now) {
                if let Some(item) = self.remove(index) {
                    keeper.gone(item);
                }
            }
        }
        if self.bounds.is_fine() {
            self.refresh(block, keeper);
        }
    }

    fn refresh(&mut self, block: usize, keeper: &impl Keeper<T>) {
        let all = self.look_at(block, &|_| false, keeper).others;
        self.bounds.set(block, all);
    }

    /// Learns when each block recovers.
    fn refine(&mut self, keeper: &impl Keeper<T>) {
        self.bounds.refine();
        for block in 0..self.bounds.blocks() {
            self.refresh(block, keeper);
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
        let slots = (self.slots.len() + self.slots.len() / 2).clamp(8, slots_for(self.most()));
        let (tags, old) = (mem::take(&mut self.tags), mem::take(&mut self.slots));
        let bounds = mem::take(&mut self.bounds);
        self.tags = vec![0; slots].into();
        self.slots = std::iter::repeat_with(T::default).take(slots).collect();
        self.bounds = Bounds::new(slots.div_ceil(BLOCK));
        (self.len, self.hand, self.turn) = (0, 0, 0);
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

    fn place(&mut self, tag: u16, item: T, earliest: Earliest) {
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
    fn put(&mut self, index: usize, tag: u16, item: T, earliest: Earliest) {
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
    fn way(&self, from: usize, to: usize) -> usize {
        if from <= to { to - from } else { to + self.slots.len() - from }
    }
}

/// What there is in a block.
struct Seen {
    first: Option<(usize, Earliest)>,
    others: Earliest,
}

#[inline]
fn earliest_of<T>(item: &T, keeper: &impl Keeper<T>) -> Earliest {
    Earliest::one(keeper.recovers_at(item), keeper.spills(item))
}

/// At most 12 of 16 slots are taken.
const LOAD: usize = 12;

fn slots_for(items: usize) -> usize {
    (items * 16).div_ceil(LOAD).max(8)
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
        recovers_at: u64,
    }

    /// Remembers which are gone.
    struct Things(Vec<Thing>);

    impl Keeper<Thing> for Things {
        fn recovers_at(&self, thing: &Thing) -> u64 {
            thing.recovers_at
        }

        fn spills(&self, thing: &Thing) -> bool {
            thing.key.is_multiple_of(3)
        }

        fn gone(&mut self, thing: Thing) {
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
            2 => (any::<bool>(), key()).prop_map(|(spilling, key)| Step::Soonest(spilling, key)),
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
                    Step::Insert(key, recovers_at) => {
                        if model.len() < table.most() && !model.contains_key(&key) {
                            table.insert(hash_of_key(key), Thing { key, recovers_at }, &things);
                            model.insert(key, recovers_at);
                        }
                    }
                    Step::Remove(key) => {
                        let index = table.find(hash_of_key(key), |thing| thing.key == key);
                        prop_assert_eq!(index.is_some(), model.remove(&key).is_some());
                        if let Some(index) = index {
                            prop_assert_eq!(table.remove(index).unwrap().key, key);
                        }
                    }
                    Step::Move(key, recovers_at) => {
                        if let Some(index) = table.find(hash_of_key(key), |t| t.key == key) {
                            table.get_mut(index).unwrap().recovers_at = recovers_at;
                            table.touched(index, &things);
                            model.insert(key, recovers_at);
                        }
                    }
                    Step::SweepOn(now) => {
                        table.sweep_on(now, &mut things);
                        for gone in things.0.drain(..) {
                            assert!(gone.recovers_at <= now);
                            assert!(model.remove(&gone.key).is_some());
                        }
                    }
                    Step::SweepAny(now) => {
                        let some = model.values().any(|&at| at <= now);
                        let before = model.len();
                        table.sweep_any(now, &mut things);
                        for gone in things.0.drain(..) {
                            assert!(gone.recovers_at <= now);
                            assert!(model.remove(&gone.key).is_some());
                        }
                        prop_assert_eq!(model.len() < before, some);
                    }
                    Step::Soonest(spilling, pinned) => {
                        let which = if spilling { Which::Spilling } else { Which::All };
                        let may_go = |key: u64| key != pinned && (!spilling || key.is_multiple_of(3));
                        let soonest = table.take_soonest(which, |thing| thing.key != pinned, &things);
                        let left = model.iter().filter(|(key, _)| may_go(**key));
                        let expected = left.map(|(_, &at)| at).min();
                        prop_assert_eq!(soonest.as_ref().map(|thing| thing.recovers_at), expected);
                        if let Some(thing) = soonest {
                            prop_assert!(may_go(thing.key));
                            prop_assert_eq!(model.remove(&thing.key), expected);
                        }
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for (&key, &recovers_at) in &model {
                    let found = table.find(hash_of_key(key), |thing| thing.key == key).unwrap();
                    prop_assert_eq!(table.get(found), Some(&Thing { key, recovers_at }));
                    let bound = table.bounds.of(found / BLOCK);
                    prop_assert!(bound.all <= recovers_at);
                    prop_assert!(!key.is_multiple_of(3) || bound.spilling <= recovers_at);

                }
                prop_assert!(table.bytes() <= Table::<Thing>::most_bytes(30));
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
            if table.len() == table.most() {
                table.take_soonest(Which::All, |_| true, &things).unwrap();
            }
            let thing = Thing { key, recovers_at: 7 };
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
            table.insert(hash, Thing { key, recovers_at: 1 + key % 2 }, &things);
            table.sweep_on(0, &mut things);
        }
        assert!(!table.bounds.is_fine());
        table.take_soonest(Which::All, |_| true, &things).unwrap();
        table.sweep_on(0, &mut things);
        assert!(table.bounds.is_fine());
        for _ in 0..table.bounds.groups() {
            table.sweep_on(1, &mut things);
        }
        assert_eq!(table.len(), 500);
        assert!(table.bounds.is_fine());
        table.take_soonest(Which::All, |_| true, &things).unwrap();
        table.sweep_on(1, &mut things);
        assert!(!table.bounds.is_fine());
    }

    #[test]
    fn a_whole_lap_of_sweeping_leaves_nothing_that_has_recovered() {
        let (mut table, mut things) = (Table::new(1_000), Things(Vec::new()));
        for key in 0..1_000 {
            table.insert(hash_of_key(key), Thing { key, recovers_at: key % 2 }, &things);
        }
        for _ in 0..table.bounds.groups() {
            table.sweep_on(0, &mut things);
        }
        assert_eq!(table.len(), 500);
    }
}
