//! Which calls are made often.

use crate::hash::spread;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A table of fixed size that finds the calls that are made often, whatever other calls there are.
///
/// Each slot counts one candidate, by the majority vote of Boyer and Moore ("MJRTY", 1981): its own calls add to the
/// count, those of others in its slot take from it, and at 0 the next one is the candidate. So a flood of calls that are
/// made once each makes none of them hot, and a hot call is found as long as it is the majority of its slot. Each span
/// counts anew. Concurrent updates of one slot may be lost, which makes a call hot later.
#[derive(Debug)]
pub(super) struct Heat {
    slots: Box<[AtomicU64]>,
    hot_after: u64,
    span_micros: u64,
}

/// A slot: the candidate (24 bits), the span (16 bits), the count (24 bits).
#[derive(Debug, Clone, Copy)]
struct Slot {
    tag: u64,
    epoch: u64,
    count: u64,
}

const COUNT_BITS: u32 = 24;
const EPOCH_BITS: u32 = 16;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
const MAX_EPOCH: u64 = (1 << EPOCH_BITS) - 1;

impl Slot {
    fn unpack(word: u64) -> Self {
        let epoch = (word >> COUNT_BITS) & MAX_EPOCH;
        Self { tag: word >> (COUNT_BITS + EPOCH_BITS), epoch, count: word & MAX_COUNT }
    }

    fn pack(self) -> u64 {
        self.tag << (COUNT_BITS + EPOCH_BITS) | self.epoch << COUNT_BITS | self.count
    }
}

impl Heat {
    pub(super) fn new(slots: usize, hot_after: u32, span_micros: u64) -> Self {
        let slots = (0..slots.max(1)).map(|_| AtomicU64::new(0)).collect();
        let hot_after = u64::from(hot_after).clamp(1, MAX_COUNT);
        Self { slots, hot_after, span_micros }
    }

    /// Records a call, and returns whether it is hot.
    pub(super) fn record(&self, hash: u64, now: u64) -> bool {
        let slot = &self.slots[spread(hash, self.slots.len())];
        let epoch = (now / self.span_micros) & MAX_EPOCH;
        // The high bits of the hash select the slot.
        let tag = hash & MAX_COUNT;
        let mut it = Slot::unpack(slot.load(Ordering::Relaxed));
        if it.epoch != epoch {
            it = Slot { tag, epoch, count: 0 };
        }
        if it.tag == tag {
            it.count = (it.count + 1).min(MAX_COUNT);
        } else if it.count == 0 {
            it = Slot { tag, epoch, count: 1 };
        } else {
            it.count -= 1;
        }
        slot.store(it.pack(), Ordering::Relaxed);
        it.tag == tag && it.count >= self.hot_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_hot_after_so_many_of_it_within_a_span() {
        let heat = Heat::new(8, 3, 100);
        assert_eq!([1, 2, 99].map(|at| heat.record(7, at)), [false, false, true]);
        assert!(!heat.record(7, 100), "a span counts anew");
    }

    #[test]
    fn a_flood_of_others_makes_none_of_them_hot_and_hides_no_majority() {
        let heat = Heat::new(1, 10, 1_000_000);
        for other in 1..100_000_u64 {
            assert!(!heat.record(other, 0), "{other}");
        }
        let hot = (0..1_000_u64).filter(|round| {
            heat.record(1_000_000 + round, 0);
            heat.record(7, 0);
            heat.record(7, 0)
        });
        assert!(hot.count() > 900);
    }
}
