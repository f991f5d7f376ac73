//! When items of a table recover, at the earliest.

use std::mem;
use std::ops::Range;

use prefetch_index::prefetch_index;

/// Which items are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// Those that keep something outside of the table.
    HeapOnly,
}

/// When the first of some items recovers: of all, and of those that spill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MinExpiry {
    pub(crate) all: u64,
    pub(crate) heap_only: u64,
}

impl MinExpiry {
    pub(crate) const NEVER: Self = Self { all: u64::MAX, heap_only: u64::MAX };

    /// Of a single item.
    pub(crate) fn one(expires_at: u64, uses_heap: bool) -> Self {
        Self { all: expires_at, heap_only: if uses_heap { expires_at } else { u64::MAX } }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { all: self.all.min(other.all), heap_only: self.heap_only.min(other.heap_only) }
    }

    pub(crate) fn of(self, scope: Scope) -> u64 {
        match scope {
            Scope::All => self.all,
            Scope::HeapOnly => self.heap_only,
        }
    }
}

/// Blocks of which a group is made.
const GROUP: usize = 16;

/// Times that no item of a part of a table goes below: for each group of blocks; and, once somebody
/// wants to know what recovers first of all, for each block. Until then an insertion has less to write,
/// which mostly is not in the cache.
///
/// The times of one kind lie side by side: of all items of the groups, of those that spill, and so of
/// the blocks.
#[derive(Debug, Default)]
pub(crate) struct ExpiryBounds {
    times: Box<[u64]>,
    groups: u32,
    blocks: u32,
}

impl ExpiryBounds {
    /// Of groups alone, in which there is nothing.
    pub(crate) fn new(blocks: usize) -> Self {
        let groups = blocks.div_ceil(GROUP);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            times: vec![u64::MAX; 2 * groups].into(),
            groups: number(groups),
            blocks: number(blocks),
        }
    }

    /// Of blocks too, and all is unknown again: [`set`](Self::set) each.
    pub(crate) fn add_block_bounds(&mut self) {
        self.times = vec![u64::MAX; 2 * (self.groups() + self.blocks())].into();
    }

    /// Of groups alone.
    pub(crate) fn drop_block_bounds(&mut self) {
        let mut times = mem::take(&mut self.times).into_vec();
        times.truncate(2 * self.groups());
        self.times = times.into();
    }

    pub(crate) fn has_block_bounds(&self) -> bool {
        self.times.len() > 2 * self.groups()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.times)
    }

    /// The most bytes of the bounds of so many blocks.
    pub(crate) fn max_bytes(blocks: usize) -> usize {
        2 * (blocks.div_ceil(GROUP) + blocks) * size_of::<u64>()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks as usize
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups as usize
    }

    pub(crate) fn blocks_of_group(&self, group: usize) -> Range<usize> {
        let blocks = self.blocks();
        (group * GROUP).min(blocks)..((group + 1) * GROUP).min(blocks)
    }

    /// The closest that is known of a block.
    pub(crate) fn of(&self, block: usize) -> MinExpiry {
        let of = |scope| {
            let blocks = self.of_blocks(scope);
            *blocks.get(block).unwrap_or(&self.of_groups(scope)[block / GROUP])
        };
        MinExpiry { all: of(Scope::All), heap_only: of(Scope::HeapOnly) }
    }

    /// Of a block, where blocks have bounds.
    pub(crate) fn set(&mut self, block: usize, earliest: MinExpiry) {
        let (own, groups) = (self.blocks_of_group(block / GROUP), self.groups());
        for (scope, place) in [(Scope::All, 0), (Scope::HeapOnly, groups)] {
            let times = self.of_blocks_mut(scope);
            let Some(time) = times.get_mut(block) else { return };
            if *time != earliest.of(scope) {
                *time = earliest.of(scope);
                let min_block = times[own.clone()].iter().copied().min();
                self.times[place + block / GROUP] = min_block.unwrap_or(u64::MAX);
            }
        }
    }

    /// Of a group, where blocks have none.
    pub(crate) fn set_group(&mut self, group: usize, earliest: MinExpiry) {
        let groups = self.groups();
        self.times[group] = earliest.all;
        self.times[groups + group] = earliest.heap_only;
    }

    /// There will be one more item in the block, or soon after.
    #[inline]
    pub(crate) fn expect(&self, block: usize) {
        prefetch_index(&*self.times, block / GROUP);
    }

    /// There is one more item in the block.
    #[inline]
    pub(crate) fn lower(&mut self, block: usize, item: MinExpiry) {
        let (groups, group) = (self.groups(), block / GROUP);
        let lower = |time: &mut u64, to: u64| *time = to.min(*time);
        lower(&mut self.times[group], item.all);
        // Few do, and then this need not even be looked at.
        if item.heap_only < u64::MAX {
            lower(&mut self.times[groups + group], item.heap_only);
        }
        if self.has_block_bounds() {
            for scope in [Scope::All, Scope::HeapOnly] {
                if let Some(time) = self.of_blocks_mut(scope).get_mut(block) {
                    lower(time, item.of(scope));
                }
            }
        }
    }

    /// The lowest bound of a block, and which it is: of equals the first from `turn` on, around the end.
    pub(crate) fn min_block(&self, scope: Scope, evict_cursor: usize) -> Option<(u64, usize)> {
        let (groups, blocks) = (self.of_groups(scope), self.of_blocks(scope));
        let min_block = *groups.iter().min()?;
        let evict_cursor = if evict_cursor < self.blocks() { evict_cursor } else { 0 };
        let first = |range: Range<usize>| {
            let start = range.start;
            let place = blocks.get(range)?.iter().position(|bound| *bound == min_block)?;
            Some((min_block, start + place))
        };
        let own = self.blocks_of_group(evict_cursor / GROUP);
        let mut others = (evict_cursor / GROUP + 1..groups.len()).chain(0..evict_cursor / GROUP);
        first(evict_cursor..own.end)
            .or_else(|| {
                let group = others.find(|&group| groups[group] == min_block)?;
                first(self.blocks_of_group(group))
            })
            .or_else(|| first(own.start..evict_cursor))
    }

    /// The lowest bound of all.
    pub(crate) fn earliest(&self, scope: Scope) -> u64 {
        self.of_groups(scope).iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Whether the bound of a group is not after `now`.
    pub(crate) fn group_may_expire(&self, group: usize, now: u64) -> bool {
        self.of_groups(Scope::All).get(group).is_some_and(|bound| *bound <= now)
    }

    /// The first group whose bound is not after `now`.
    pub(crate) fn first_expired_group(&self, now: u64) -> Option<usize> {
        self.of_groups(Scope::All).iter().position(|bound| *bound <= now)
    }

    fn of_groups(&self, scope: Scope) -> &[u64] {
        let (all, others) = self.times.split_at(self.groups());
        if scope == Scope::All { all } else { &others[..self.groups()] }
    }

    /// None, where only groups have bounds.
    fn of_blocks(&self, scope: Scope) -> &[u64] {
        let blocks = &self.times[2 * self.groups()..];
        let (all, heap_only) = blocks.split_at(blocks.len() / 2);
        if scope == Scope::All { all } else { heap_only }
    }

    fn of_blocks_mut(&mut self, scope: Scope) -> &mut [u64] {
        let groups = self.groups();
        let blocks = &mut self.times[2 * groups..];
        let (all, heap_only) = blocks.split_at_mut(blocks.len() / 2);
        if scope == Scope::All { all } else { heap_only }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equally_low_bounds_the_next_in_turn_is_the_lowest() {
        let mut bounds = ExpiryBounds::new(40);
        bounds.add_block_bounds();
        assert_eq!(bounds.min_block(Scope::All, 0), Some((u64::MAX, 0)));
        for (block, at) in [(0, 7), (1, 5), (3, 5), (39, 5)] {
            bounds.lower(block, MinExpiry::one(at, block == 0));
        }
        let turns = [(0, 1), (1, 1), (2, 3), (3, 3), (4, 39), (20, 39), (39, 39), (40, 1), (99, 1)];
        for (evict_cursor, block) in turns {
            assert_eq!(
                bounds.min_block(Scope::All, evict_cursor),
                Some((5, block)),
                "from {evict_cursor} on"
            );
        }
        assert_eq!(bounds.min_block(Scope::HeapOnly, 3), Some((7, 0)));
        bounds.set(39, MinExpiry::NEVER);
        bounds.set(3, MinExpiry::NEVER);
        assert_eq!(bounds.min_block(Scope::All, 2), Some((5, 1)));
        assert_eq!(ExpiryBounds::default().min_block(Scope::All, 0), None);
    }

    #[test]
    fn a_block_is_known_as_closely_as_its_group_or_by_itself() {
        let mut bounds = ExpiryBounds::new(40);
        bounds.lower(17, MinExpiry::one(5, true));
        bounds.lower(18, MinExpiry::one(9, false));
        assert_eq!(bounds.of(18), MinExpiry { all: 5, heap_only: 5 });
        assert_eq!(bounds.of(15), MinExpiry::NEVER);
        assert_eq!(bounds.first_expired_group(4), None);
        assert_eq!(bounds.first_expired_group(5), Some(1));
        bounds.add_block_bounds();
        assert_eq!(bounds.first_expired_group(u64::MAX - 1), None);
        bounds.set(17, MinExpiry::one(5, true));
        bounds.set(18, MinExpiry::one(9, false));
        assert_eq!(bounds.of(18), MinExpiry { all: 9, heap_only: u64::MAX });
        bounds.set(17, MinExpiry::NEVER);
        assert_eq!(bounds.first_expired_group(8), None);
        assert!(bounds.has_block_bounds() && bounds.bytes() == ExpiryBounds::max_bytes(40));
        bounds.drop_block_bounds();
        assert_eq!(bounds.of(17), MinExpiry { all: 9, heap_only: u64::MAX });
        assert!(!bounds.has_block_bounds() && bounds.bytes() < 100);
    }
}
