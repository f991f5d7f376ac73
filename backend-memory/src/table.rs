//! A hash table with a hard bound, that is swept a block at a time.
//!
//! Open addressing with linear probing. A byte per slot tells most misses from a hit without
//! touching the entry; removing shifts entries back instead of leaving tombstones, so a table at its
//! bound can be churned for ever without growing. For each block of slots there is a lower bound on
//! the times at which its entries recover, so that sweeping looks only where something may be found,
//! and "is there any recovered entry at all" is answered without a scan.

use std::ops::Range;

use crate::bounds::{Bounds, Earliest, Which};

/// Slots in a block.
const BLOCK: usize = 32;

/// Knows what items mean, which they do not say themselves.
pub(crate) trait Keeper<T> {
    /// The hash that the item was inserted with.
    fn hash(&self, item: &T) -> u64;

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
    /// 0 for a free slot, else seven bits of the hash and a high one.
    tags: Box<[u8]>,
    slots: Box<[Option<T>]>,
    len: usize,
    /// The most items that there may ever be.
    most: usize,
    bounds: Bounds,
    /// The block to sweep next.
    hand: u32,
    /// The block that is the first to give something up, of those that might.
    turn: u32,
}

impl<T> Table<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            tags: Box::default(),
            slots: Box::default(),
            bounds: Bounds::default(),
            len: 0,
            most,
            hand: 0,
            turn: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The most items that there may be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Bytes that the table takes, apart from what its items keep elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.slots.len())
    }

    /// Bytes that a table takes at its bound.
    pub(crate) fn most_bytes(most: usize) -> usize {
        Self::bytes_of(slots_for(most))
    }

    fn bytes_of(slots: usize) -> usize {
        slots * (1 + size_of::<Option<T>>()) + Bounds::bytes_of(slots.div_ceil(BLOCK))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.slots.get(index)?.as_ref()
    }

    /// Changes an item. Afterwards call [`touched`](Self::touched) if it may recover earlier now.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)?.as_mut()
    }

    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let wanted = tag(hash);
        let mut index = self.home(hash);
        loop {
            match self.tags[index] {
                0 => return None,
                tag if tag == wanted && self.slots[index].as_ref().is_some_and(&is) => {
                    return Some(index);
                }
                _ => index = self.next(index),
            }
        }
    }

    /// Inserts an item that is not there yet. There must be room.
    pub(crate) fn insert(&mut self, hash: u64, item: T, keeper: &impl Keeper<T>) -> usize {
        if (self.len + 1) * 16 > self.slots.len() * LOAD {
            self.grow(keeper);
        }
        self.place(hash, item, keeper)
    }

    /// Removes the item at `index`. Others may move.
    pub(crate) fn remove(&mut self, index: usize, keeper: &impl Keeper<T>) -> Option<T> {
        let removed = self.slots[index].take()?;
        self.len -= 1;
        let (mut hole, mut at) = (index, self.next(index));
        while let Some(item) = &self.slots[at] {
            let home = self.home(keeper.hash(item));
            // The item may fill the hole unless its home lies after the hole, on the way to it.
            if self.way(home, at) >= self.way(hole, at) {
                self.tags[hole] = self.tags[at];
                self.slots[hole] = self.slots[at].take();
                self.touched(hole, keeper);
                hole = at;
            }
            at = self.next(at);
        }
        self.tags[hole] = 0;
        Some(removed)
    }

    /// Says that the item at `index` may recover earlier than before.
    pub(crate) fn touched(&mut self, index: usize, keeper: &impl Keeper<T>) {
        if let Some(item) = &self.slots[index] {
            self.bounds.lower(index / BLOCK, earliest_of(item, keeper));
        }
    }

    /// Looks at one more block, and removes what has recovered there.
    #[inline]
    pub(crate) fn sweep_on(&mut self, now: u64, keeper: &mut impl Keeper<T>) {
        let hand = self.hand as usize;
        if self.bounds.of(Which::All).get(hand).is_some_and(|bound| *bound <= now) {
            self.sweep_block(hand, now, keeper);
        }
        self.hand = if hand + 1 < self.bounds.blocks() { self.hand + 1 } else { 0 };
    }

    /// Removes at least one recovered item, unless there is none in the whole table.
    pub(crate) fn sweep_any(&mut self, now: u64, keeper: &mut impl Keeper<T>) {
        let before = self.len;
        while self.len == before {
            let bounds = self.bounds.of(Which::All);
            let Some(block) = bounds.iter().position(|bound| *bound <= now) else { return };
            // Finds something, or learns that there is nothing: the bound of the block rises.
            self.sweep_block(block, now, keeper);
        }
    }

    /// Removes the item that recovers first of those that may go.
    pub(crate) fn take_soonest(
        &mut self,
        which: Which,
        may_go: impl Fn(&T) -> bool,
        keeper: &impl Keeper<T>,
    ) -> Option<T> {
        let may_go = |item: &T| (which == Which::All || keeper.spills(item)) && may_go(item);
        match self.soonest_at_once(which, &may_go, keeper) {
            Some(index) => self.remove(index, keeper),
            None => {
                let index = self.soonest_by_and_by(which, &may_go, keeper)?;
                let item = self.remove(index, keeper);
                self.refresh(index / BLOCK, keeper);
                item
            }
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
            let Some(item) = &self.slots[index] else { continue };
            let mut other = earliest_of(item, keeper);
            if first.is_none_or(|(_, first)| other.all < first.all) && may_go(item) {
                let before = first.replace((index, other));
                other = before.map_or(Earliest::NEVER, |(_, before)| before);
            }
            others = others.and(other);
        }
        Seen { first, others }
    }

    fn sweep_block(&mut self, block: usize, now: u64, keeper: &mut impl Keeper<T>) {
        for index in self.block(block) {
            // Removing shifts another item in, which may have recovered too.
            while self.slots[index].as_ref().is_some_and(|item| keeper.recovers_at(item) <= now) {
                if let Some(item) = self.remove(index, keeper) {
                    keeper.gone(item);
                }
            }
        }
        self.refresh(block, keeper);
    }

    fn refresh(&mut self, block: usize, keeper: &impl Keeper<T>) {
        let all = self.look_at(block, &|_| false, keeper).others;
        self.bounds.set(block, all);
    }

    fn block(&self, block: usize) -> Range<usize> {
        block * BLOCK..((block + 1) * BLOCK).min(self.slots.len())
    }

    fn grow(&mut self, keeper: &impl Keeper<T>) {
        let slots = (self.slots.len() + self.slots.len() / 2).clamp(8, slots_for(self.most));
        let old = std::mem::take(&mut self.slots);
        self.tags = vec![0; slots].into();
        self.slots = std::iter::repeat_with(|| None).take(slots).collect();
        self.bounds = Bounds::new(slots.div_ceil(BLOCK));
        (self.len, self.hand, self.turn) = (0, 0, 0);
        for item in old.into_iter().flatten() {
            self.place(keeper.hash(&item), item, keeper);
        }
    }

    fn place(&mut self, hash: u64, item: T, keeper: &impl Keeper<T>) -> usize {
        let mut index = self.home(hash);
        while self.tags[index] != 0 {
            index = self.next(index);
        }
        self.tags[index] = tag(hash);
        self.slots[index] = Some(item);
        self.len += 1;
        self.touched(index, keeper);
        index
    }

    /// The slot where the search for a hash begins: the hash scaled to the number of slots.
    fn home(&self, hash: u64) -> usize {
        let scaled = (u128::from(hash) * self.slots.len() as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

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

/// At most 13 of 16 slots are taken.
const LOAD: usize = 13;

fn slots_for(items: usize) -> usize {
    (items * 16).div_ceil(LOAD).max(8)
}

/// The low bits: the high ones choose the slot.
fn tag(hash: u64) -> u8 {
    0x80 | hash.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Thing {
        key: u64,
        recovers_at: u64,
    }

    /// Knows by a function how things are hashed, and remembers which are gone.
    struct Things(fn(u64) -> u64, Vec<Thing>);

    impl Keeper<Thing> for Things {
        fn hash(&self, thing: &Thing) -> u64 {
            self.0(thing.key)
        }

        fn recovers_at(&self, thing: &Thing) -> u64 {
            thing.recovers_at
        }

        fn spills(&self, thing: &Thing) -> bool {
            thing.key.is_multiple_of(3)
        }

        fn gone(&mut self, thing: Thing) {
            self.1.push(thing);
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
            let mut things = Things(hash_of_key, Vec::new());
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
                            prop_assert_eq!(table.remove(index, &things).unwrap().key, key);
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
                        for gone in things.1.drain(..) {
                            assert!(gone.recovers_at <= now);
                            assert!(model.remove(&gone.key).is_some());
                        }
                    }
                    Step::SweepAny(now) => {
                        let some = model.values().any(|&at| at <= now);
                        let before = model.len();
                        table.sweep_any(now, &mut things);
                        for gone in things.1.drain(..) {
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
                    let bound = |which| table.bounds.of(which)[found / BLOCK];
                    prop_assert!(bound(Which::All) <= recovers_at);
                    prop_assert!(!key.is_multiple_of(3) || bound(Which::Spilling) <= recovers_at);
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
        let things = Things(hash, Vec::new());
        let mut table = Table::new(2_000);
        for key in 0..50_000 {
            if table.len() == table.most() {
                table.take_soonest(Which::All, |_| true, &things).unwrap();
            }
            let thing = Thing { key, recovers_at: 7 };
            table.insert(hash(key), thing, &things);
        }
        let longest = table.tags.split(|&tag| tag == 0).map(<[u8]>::len).max().unwrap();
        assert!(longest < 300, "{longest} slots in a row are taken, of {}", table.tags.len());
    }

    #[test]
    fn a_whole_lap_of_sweeping_leaves_nothing_that_has_recovered() {
        let (mut table, mut things) = (Table::new(1_000), Things(hash_of_key, Vec::new()));
        for key in 0..1_000 {
            table.insert(hash_of_key(key), Thing { key, recovers_at: key % 2 }, &things);
        }
        for _ in 0..slots_for(1_000).div_ceil(BLOCK) {
            table.sweep_on(0, &mut things);
        }
        assert_eq!(table.len(), 500);
    }
}
