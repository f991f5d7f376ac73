//! Detection of the calls that are made often.

use crate::hash::spread;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A table of fixed size that finds the calls that are made often, among any number of other calls.
///
/// Each slot has a candidate call and a count, as in the majority vote of Boyer and Moore ("MJRTY",
/// 1981). If a call in the slot is the candidate, the count grows by 1. If it is another call, the
/// count shrinks by 1. At 0, the next call becomes the candidate. So in a flood of calls that are
/// made once each, no call becomes hot. A frequent call becomes hot if it makes up the majority of
/// the calls in its slot.
///
/// The counts start again at 0 in each span. If two threads update a slot concurrently, one update
/// is possibly lost, and a call becomes hot a little later.
#[derive(Debug)]
pub(super) struct Heat {
    slots: Box<[AtomicU64]>,
    hot_after: u64,
    span_micros: u64,
}

/// A slot of the table: a part of the candidate's hash (24 bits), the number of the span (16 bits)
/// and the count (24 bits).
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

    pub(super) fn record(&self, hash: u64, now: u64) -> bool {
        let slot = &self.slots[spread(hash, self.slots.len())];
        let epoch = (now / self.span_micros) & MAX_EPOCH;
        // The slot stores the low bits of the hash as its tag, because the high bits select the
        // slot.
        let tag = hash & MAX_COUNT;
        let mut vote = Slot::unpack(slot.load(Ordering::Relaxed));
        if vote.epoch != epoch {
            vote = Slot { tag, epoch, count: 0 };
        }
        if vote.tag == tag {
            vote.count = (vote.count + 1).min(MAX_COUNT);
        } else if vote.count == 0 {
            vote = Slot { tag, epoch, count: 1 };
        } else {
            vote.count -= 1;
        }
        slot.store(vote.pack(), Ordering::Relaxed);
        vote.tag == tag && vote.count >= self.hot_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_hot_after_this_many_calls_within_a_span() {
        let heat = Heat::new(8, 3, 100);
        assert_eq!([1, 2, 99].map(|at| heat.record(7, at)), [false, false, true]);
        assert!(!heat.record(7, 100), "the count starts again at 0");
    }

    #[test]
    fn a_flood_of_other_calls_makes_none_of_them_hot_and_hides_no_majority() {
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
