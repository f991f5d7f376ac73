//! When items of a table recover, at the earliest.

use std::mem;
use std::ops::Range;

use prefetch_index::prefetch_index;

/// Which items are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// Those that keep something outside of the table.
    Spilling,
}

/// When the first of some items recovers: of all, and of those that spill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Earliest {
    pub(crate) all: u64,
    pub(crate) spilling: u64,
}

impl Earliest {
    pub(crate) const NEVER: Self = Self { all: u64::MAX, spilling: u64::MAX };

    /// Of a single item.
    pub(crate) fn one(recovers_at: u64, spills: bool) -> Self {
        Self { all: recovers_at, spilling: if spills { recovers_at } else { u64::MAX } }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { all: self.all.min(other.all), spilling: self.spilling.min(other.spilling) }
    }

    pub(crate) fn of(self, which: Which) -> u64 {
        match which {
            Which::All => self.all,
            Which::Spilling => self.spilling,
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
pub(crate) struct Bounds {
    times: Box<[u64]>,
    groups: u32,
    blocks: u32,
}

impl Bounds {
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
    pub(crate) fn refine(&mut self) {
        self.times = vec![u64::MAX; 2 * (self.groups() + self.blocks())].into();
    }

    /// Of groups alone.
    pub(crate) fn coarsen(&mut self) {
        let mut times = mem::take(&mut self.times).into_vec();
        times.truncate(2 * self.groups());
        self.times = times.into();
    }

    pub(crate) fn is_fine(&self) -> bool {
        self.times.len() > 2 * self.groups()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.times)
    }

    /// The most bytes of the bounds of so many blocks.
    pub(crate) fn most_bytes(blocks: usize) -> usize {
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
    pub(crate) fn of(&self, block: usize) -> Earliest {
        let of = |which| {
            let blocks = self.of_blocks(which);
            *blocks.get(block).unwrap_or(&self.of_groups(which)[block / GROUP])
        };
        Earliest { all: of(Which::All), spilling: of(Which::Spilling) }
    }

    /// Of a block, where blocks have bounds.
    pub(crate) fn set(&mut self, block: usize, earliest: Earliest) {
        let (own, groups) = (self.blocks_of_group(block / GROUP), self.groups());
        for (which, place) in [(Which::All, 0), (Which::Spilling, groups)] {
            let times = self.of_blocks_mut(which);
            let Some(time) = times.get_mut(block) else { return };
            if *time != earliest.of(which) {
                *time = earliest.of(which);
                let lowest = times[own.clone()].iter().copied().min();
                self.times[place + block / GROUP] = lowest.unwrap_or(u64::MAX);
            }
        }
    }

    /// Of a group, where blocks have none.
    pub(crate) fn set_group(&mut self, group: usize, earliest: Earliest) {
        let groups = self.groups();
        self.times[group] = earliest.all;
        self.times[groups + group] = earliest.spilling;
    }

    /// There will be one more item in the block, or soon after.
    #[inline]
    pub(crate) fn expect(&self, block: usize) {
        prefetch_index(&*self.times, block / GROUP);
    }

    /// There is one more item in the block.
    #[inline]
    pub(crate) fn lower(&mut self, block: usize, item: Earliest) {
        let (groups, group) = (self.groups(), block / GROUP);
        let lower = |time: &mut u64, to: u64| *time = to.min(*time);
        lower(&mut self.times[group], item.all);
        // Few do, and then this need not even be looked at.
        if item.spilling < u64::MAX {
            lower(&mut self.times[groups + group], item.spilling);
        }
        if self.is_fine() {
            for which in [Which::All, Which::Spilling] {
                if let Some(time) = self.of_blocks_mut(which).get_mut(block) {
                    lower(time, item.of(which));
                }
            }
        }
    }

    /// The lowest bound of a block, and which it is: of equals the first from `turn` on, around the end.
    pub(crate) fn lowest(&self, which: Which, turn: usize) -> Option<(u64, usize)> {
        let (groups, blocks) = (self.of_groups(which), self.of_blocks(which));
        let lowest = *groups.iter().min()?;
        let turn = if turn < self.blocks() { turn } else { 0 };
        let first = |range: Range<usize>| {
            let start = range.start;
            let place = blocks.get(range)?.iter().position(|bound| *bound == lowest)?;
            Some((lowest, start + place))
        };
        let own = self.blocks_of_group(turn / GROUP);
        let mut others = (turn / GROUP + 1..groups.len()).chain(0..turn / GROUP);
        first(turn..own.end)
            .or_else(|| {
                let group = others.find(|&group| groups[group] == lowest)?;
                first(self.blocks_of_group(group))
            })
            .or_else(|| first(own.start..turn))
    }

    /// The lowest bound of all.
    pub(crate) fn earliest(&self, which: Which) -> u64 {
        self.of_groups(which).iter().copied().min().unwrap_or(u64::MAX)
    }

    /// Whether the bound of a group is not after `now`.
    pub(crate) fn is_until(&self, group: usize, now: u64) -> bool {
        self.of_groups(Which::All).get(group).is_some_and(|bound| *bound <= now)
    }

    /// The first group whose bound is not after `now`.
    pub(crate) fn first_until(&self, now: u64) -> Option<usize> {
        self.of_groups(Which::All).iter().position(|bound| *bound <= now)
    }

    fn of_groups(&self, which: Which) -> &[u64] {
        let (all, others) = self.times.split_at(self.groups());
        if which == Which::All { all } else { &others[..self.groups()] }
    }

    /// None, where only groups have bounds.
    fn of_blocks(&self, which: Which) -> &[u64] {
        let blocks = &self.times[2 * self.groups()..];
        let (all, spilling) = blocks.split_at(blocks.len() / 2);
        if which == Which::All { all } else { spilling }
    }

    fn of_blocks_mut(&mut self, which: Which) -> &mut [u64] {
        let groups = self.groups();
        let blocks = &mut self.times[2 * groups..];
        let (all, spilling) = blocks.split_at_mut(blocks.len() / 2);
        if which == Which::All { all } else { spilling }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equally_low_bounds_the_next_in_turn_is_the_lowest() {
        let mut bounds = Bounds::new(40);
        bounds.refine();
        assert_eq!(bounds.lowest(Which::All, 0), Some((u64::MAX, 0)));
        for (block, at) in [(0, 7), (1, 5), (3, 5), (39, 5)] {
            bounds.lower(block, Earliest::one(at, block == 0));
        }
        let turns = [(0, 1), (1, 1), (2, 3), (3, 3), (4, 39), (20, 39), (39, 39), (40, 1), (99, 1)];
        for (turn, block) in turns {
            assert_eq!(bounds.lowest(Which::All, turn), Some((5, block)), "from {turn} on");
        }
        assert_eq!(bounds.lowest(Which::Spilling, 3), Some((7, 0)));
        bounds.set(39, Earliest::NEVER);
        bounds.set(3, Earliest::NEVER);
        assert_eq!(bounds.lowest(Which::All, 2), Some((5, 1)));
        assert_eq!(Bounds::default().lowest(Which::All, 0), None);
    }

    #[test]
    fn a_block_is_known_as_closely_as_its_group_or_by_itself() {
        let mut bounds = Bounds::new(40);
        bounds.lower(17, Earliest::one(5, true));
        bounds.lower(18, Earliest::one(9, false));
        assert_eq!(bounds.of(18), Earliest { all: 5, spilling: 5 });
        assert_eq!(bounds.of(15), Earliest::NEVER);
        assert_eq!(bounds.first_until(4), None);
        assert_eq!(bounds.first_until(5), Some(1));
        bounds.refine();
        assert_eq!(bounds.first_until(u64::MAX - 1), None);
        bounds.set(17, Earliest::one(5, true));
        bounds.set(18, Earliest::one(9, false));
        assert_eq!(bounds.of(18), Earliest { all: 9, spilling: u64::MAX });
        bounds.set(17, Earliest::NEVER);
        assert_eq!(bounds.first_until(8), None);
        assert!(bounds.is_fine() && bounds.bytes() == Bounds::most_bytes(40));
        bounds.coarsen();
        assert_eq!(bounds.of(17), Earliest { all: 9, spilling: u64::MAX });
        assert!(!bounds.is_fine() && bounds.bytes() < 100);
    }
}
