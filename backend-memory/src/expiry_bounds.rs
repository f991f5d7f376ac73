//! Lower bounds on the expiry times of the entries of a table.

use std::mem;
use std::ops::Range;

use prefetch_index::prefetch_index;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    HeapOnly,
}

/// The earliest expiry time of a set of entries, and the earliest expiry time of the entries in
/// this set that use the heap. A time is `u64::MAX` if the set has no such entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MinExpiry {
    pub(crate) all: u64,
    pub(crate) heap_only: u64,
}

impl MinExpiry {
    pub(crate) const NEVER: Self = Self { all: u64::MAX, heap_only: u64::MAX };

    pub(crate) fn new(expires_at: u64, uses_heap: bool) -> Self {
        Self { all: expires_at, heap_only: if uses_heap { expires_at } else { u64::MAX } }
    }

    pub(crate) fn min(self, other: Self) -> Self {
        Self { all: self.all.min(other.all), heap_only: self.heap_only.min(other.heap_only) }
    }

    pub(crate) fn in_scope(self, scope: Scope) -> u64 {
        match scope {
            Scope::All => self.all,
            Scope::HeapOnly => self.heap_only,
        }
    }
}

const GROUP: usize = 16;

/// Lower bounds on the expiry times of the entries of a table. A block is 8 slots, and a group is
/// 16 blocks. Each group has a bound. A block has its own bound only after the table had to evict
/// an entry.
///
/// One slice stores the expiry bounds of a table, in four parts:
///
/// ```text
/// | groups, all | groups, heap only | blocks, all | blocks, heap only |
/// ```
///
/// A bound is never later than the earliest expiry time in its block or group, but can be earlier.
/// The table calls [`lower`](Self::lower) when it adds an entry, and when an entry will expire
/// earlier than before. A scan of the block or group raises the bound again.
// The bounds of blocks make evictions faster: without them, each eviction would scan a group of 128
// slots. But these bounds make insertions slower, because each insertion writes one more word,
// usually to a cache line that is not in the cache. So a table that need not evict has no bounds of
// blocks.
#[derive(Debug, Default)]
pub(crate) struct ExpiryBounds {
    times: Box<[u64]>,
    groups: u32,
    blocks: u32,
}

impl ExpiryBounds {
    pub(crate) fn new(blocks: usize) -> Self {
        let groups = blocks.div_ceil(GROUP);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            times: vec![u64::MAX; 2 * groups].into(),
            groups: number(groups),
            blocks: number(blocks),
        }
    }

    /// Adds expiry bounds for blocks of slots, and resets the bounds of all groups. The caller must
    /// then call [`set_block`](Self::set_block) for each block, which also sets the bound of the
    /// group.
    pub(crate) fn add_block_bounds(&mut self) {
        self.times = vec![u64::MAX; 2 * (self.groups() + self.blocks())].into();
    }

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

    /// Returns the expiry bound of a block of slots. If blocks have no bounds, returns the bound of
    /// the block's group.
    pub(crate) fn block(&self, block: usize) -> MinExpiry {
        let bound = |scope| {
            let blocks = self.block_times(scope);
            *blocks.get(block).unwrap_or(&self.group_times(scope)[block / GROUP])
        };
        MinExpiry { all: bound(Scope::All), heap_only: bound(Scope::HeapOnly) }
    }

    /// Sets the expiry bound of a block of slots, and updates the bound of the block's group. Does
    /// nothing if blocks have no bounds.
    pub(crate) fn set_block(&mut self, block: usize, expiry: MinExpiry) {
        let (own, groups) = (self.blocks_of_group(block / GROUP), self.groups());
        for (scope, offset) in [(Scope::All, 0), (Scope::HeapOnly, groups)] {
            let times = self.block_times_mut(scope);
            let Some(time) = times.get_mut(block) else { return };
            if *time != expiry.in_scope(scope) {
                *time = expiry.in_scope(scope);
                let min = times[own.clone()].iter().copied().min();
                self.times[offset + block / GROUP] = min.unwrap_or(u64::MAX);
            }
        }
    }

    /// Sets the expiry bound of a group of slots. Blocks must not have bounds.
    pub(crate) fn set_group(&mut self, group: usize, expiry: MinExpiry) {
        let groups = self.groups();
        self.times[group] = expiry.all;
        self.times[groups + group] = expiry.heap_only;
    }

    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        prefetch_index(&*self.times, block / GROUP);
    }

    /// Lowers the expiry bounds of a block of slots, and of its group, to the expiry of an entry. A
    /// bound that is already lower does not change.
    #[inline]
    pub(crate) fn lower(&mut self, block: usize, entry: MinExpiry) {
        let (groups, group) = (self.groups(), block / GROUP);
        let lower = |time: &mut u64, to: u64| *time = to.min(*time);
        lower(&mut self.times[group], entry.all);
        // Few entries use the heap. For an entry that does not use the heap, the function does not
        // touch the bound for heap entries, because that bound is on another cache line.
        if entry.heap_only < u64::MAX {
            lower(&mut self.times[groups + group], entry.heap_only);
        }
        if self.has_block_bounds() {
            for scope in [Scope::All, Scope::HeapOnly] {
                if let Some(time) = self.block_times_mut(scope).get_mut(block) {
                    lower(time, entry.in_scope(scope));
                }
            }
        }
    }

    /// Returns the lowest expiry bound of all blocks of slots, and the first block with this bound
    /// at or after the block `from`. After the last block, the search continues at the first block.
    pub(crate) fn min_block(&self, scope: Scope, from: usize) -> Option<(u64, usize)> {
        let (groups, blocks) = (self.group_times(scope), self.block_times(scope));
        let min = *groups.iter().min()?;
        let from = if from < self.blocks() { from } else { 0 };
        let first = |range: Range<usize>| {
            let start = range.start;
            let offset = blocks.get(range)?.iter().position(|bound| *bound == min)?;
            Some((min, start + offset))
        };
        let own = self.blocks_of_group(from / GROUP);
        let mut others = (from / GROUP + 1..groups.len()).chain(0..from / GROUP);
        first(from..own.end)
            .or_else(|| {
                let group = others.find(|&group| groups[group] == min)?;
                first(self.blocks_of_group(group))
            })
            .or_else(|| first(own.start..from))
    }

    pub(crate) fn min(&self, scope: Scope) -> u64 {
        self.group_times(scope).iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Returns `true` if the expiry bound of a group of slots is at or before `now`, so that the
    /// group possibly contains expired entries.
    pub(crate) fn may_have_expired(&self, group: usize, now: u64) -> bool {
        self.group_times(Scope::All).get(group).is_some_and(|bound| *bound <= now)
    }

    /// Returns the first group of slots with an expiry bound at or before `now`, which possibly
    /// contains expired entries.
    pub(crate) fn first_expired_group(&self, now: u64) -> Option<usize> {
        self.group_times(Scope::All).iter().position(|bound| *bound <= now)
    }

    fn group_times(&self, scope: Scope) -> &[u64] {
        let (all, others) = self.times.split_at(self.groups());
        if scope == Scope::All { all } else { &others[..self.groups()] }
    }

    fn block_times(&self, scope: Scope) -> &[u64] {
        let blocks = &self.times[2 * self.groups()..];
        let (all, heap_only) = blocks.split_at(blocks.len() / 2);
        if scope == Scope::All { all } else { heap_only }
    }

    fn block_times_mut(&mut self, scope: Scope) -> &mut [u64] {
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
    fn the_first_of_equal_bounds_at_or_after_the_cursor_is_the_minimum() {
        let mut bounds = ExpiryBounds::new(40);
        bounds.add_block_bounds();
        assert_eq!(bounds.min_block(Scope::All, 0), Some((u64::MAX, 0)));
        for (block, at) in [(0, 7), (1, 5), (3, 5), (39, 5)] {
            bounds.lower(block, MinExpiry::new(at, block == 0));
        }
        let cursors =
            [(0, 1), (1, 1), (2, 3), (3, 3), (4, 39), (20, 39), (39, 39), (40, 1), (99, 1)];
        for (from, block) in cursors {
            assert_eq!(bounds.min_block(Scope::All, from), Some((5, block)), "from {from} on");
        }
        assert_eq!(bounds.min_block(Scope::HeapOnly, 3), Some((7, 0)));
        bounds.set_block(39, MinExpiry::NEVER);
        bounds.set_block(3, MinExpiry::NEVER);
        assert_eq!(bounds.min_block(Scope::All, 2), Some((5, 1)));
        assert_eq!(ExpiryBounds::default().min_block(Scope::All, 0), None);
    }

    #[test]
    fn a_block_has_its_groups_bound_until_blocks_have_bounds() {
        let mut bounds = ExpiryBounds::new(40);
        bounds.lower(17, MinExpiry::new(5, true));
        bounds.lower(18, MinExpiry::new(9, false));
        assert_eq!(bounds.block(18), MinExpiry { all: 5, heap_only: 5 });
        assert_eq!(bounds.block(15), MinExpiry::NEVER);
        assert_eq!(bounds.first_expired_group(4), None);
        assert_eq!(bounds.first_expired_group(5), Some(1));
        bounds.add_block_bounds();
        assert_eq!(bounds.first_expired_group(u64::MAX - 1), None);
        bounds.set_block(17, MinExpiry::new(5, true));
        bounds.set_block(18, MinExpiry::new(9, false));
        assert_eq!(bounds.block(18), MinExpiry { all: 9, heap_only: u64::MAX });
        bounds.set_block(17, MinExpiry::NEVER);
        assert_eq!(bounds.first_expired_group(8), None);
        assert!(bounds.has_block_bounds() && bounds.bytes() == ExpiryBounds::max_bytes(40));
        bounds.drop_block_bounds();
        assert_eq!(bounds.block(17), MinExpiry { all: 9, heap_only: u64::MAX });
        assert!(!bounds.has_block_bounds() && bounds.bytes() < 100);
    }
}
