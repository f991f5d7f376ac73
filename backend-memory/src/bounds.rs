//! When items of a table recover, at the earliest.

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

/// For each block of a table, times that no item of it goes below. The times of one kind lie side by
/// side, so that looking through them is quick.
#[derive(Debug, Default)]
pub(crate) struct Bounds(Box<[u64]>);

impl Bounds {
    pub(crate) fn new(blocks: usize) -> Self {
        Self(vec![u64::MAX; 2 * blocks].into())
    }

    pub(crate) fn bytes_of(blocks: usize) -> usize {
        2 * blocks * size_of::<u64>()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.0.len() / 2
    }

    pub(crate) fn of(&self, which: Which) -> &[u64] {
        let (all, spilling) = self.0.split_at(self.blocks());
        match which {
            Which::All => all,
            Which::Spilling => spilling,
        }
    }

    pub(crate) fn set(&mut self, block: usize, earliest: Earliest) {
        let blocks = self.blocks();
        self.0[block] = earliest.all;
        self.0[blocks + block] = earliest.spilling;
    }

    /// There is one more item in the block.
    #[inline]
    pub(crate) fn lower(&mut self, block: usize, item: Earliest) {
        let blocks = self.blocks();
        self.0[block] = self.0[block].min(item.all);
        if item.spilling < u64::MAX {
            self.0[blocks + block] = self.0[blocks + block].min(item.spilling);
        }
    }

    /// The lowest bound, and its block: of equals the first from `turn` on, around the end.
    pub(crate) fn lowest(&self, which: Which, turn: usize) -> Option<(u64, usize)> {
        let bounds = self.of(which);
        let lowest = *bounds.iter().min()?;
        let (before, after) = bounds.split_at_checked(turn).unwrap_or((bounds, &[]));
        let is_lowest = |bound: &u64| *bound == lowest;
        let block = match after.iter().position(is_lowest) {
            Some(place) => before.len() + place,
            None => before.iter().position(is_lowest)?,
        };
        Some((lowest, block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equally_low_bounds_the_next_in_turn_is_the_lowest() {
        let mut bounds = Bounds::new(4);
        assert_eq!(bounds.lowest(Which::All, 0), Some((u64::MAX, 0)));
        for (block, at) in [(0, 7), (1, 5), (3, 5)] {
            bounds.lower(block, Earliest::one(at, block == 0));
        }
        for (turn, block) in [(0, 1), (1, 1), (2, 3), (3, 3), (4, 1), (9, 1)] {
            assert_eq!(bounds.lowest(Which::All, turn), Some((5, block)), "from {turn} on");
        }
        assert_eq!(bounds.lowest(Which::Spilling, 3), Some((7, 0)));
        assert_eq!(Bounds::default().lowest(Which::All, 0), None);
    }
}
