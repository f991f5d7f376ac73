//! Sliding log: a record per admitted request, exact over any window of length `W`.
//!
//! Admits iff the costs of the records with `time > t − W`, plus `c`, are at most `L`. With a grain
//! `g`, requests of one grain share a record that is timed at the grain's end, so that it counts at
//! least as long as each of them would: never more than the exact log admits, with at most
//! `W/g + 2` records.
//!
//! Records carry running totals instead of their own costs, so that the sum over a window is one
//! subtraction and finding where it begins is a binary search: a decision takes `O(log n)`, and a
//! denial writes nothing, not even to drop what has expired.

use std::collections::VecDeque;

use super::Level;
use crate::time::Wait;

/// The newest records, among which that of a take is looked for that is to be undone: as the totals of
/// all behind it change, what that may cost has to be bounded.
pub const MAX_UNDO: usize = 128;

/// So many expired records are found and dropped one by one.
const FEW: usize = 4;

/// The numbers of a sliding log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    /// Microseconds in a grain; 0 for the exact log.
    pub(crate) grain: u64,
}

/// The records, oldest first: collected from pairs of a time and a cost, as
/// [`records`](Self::records) yields them.
#[derive(Debug, Clone, Default)]
pub struct State {
    records: VecDeque<Record>,
    /// The running total before the oldest record.
    before: u64,
}

/// One admitted request, or all of one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    stamp: u64,
    /// Costs up to and with this record. Wraps around: only differences have a meaning.
    total: u64,
}

impl SlidingLog {
    /// How long until `cost` is admitted.
    #[must_use]
    pub fn wait(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.limit.checked_sub(cost) else {
            return Wait::NEVER;
        };
        let Some(state) = state else { return Wait::ZERO };
        let first = self.first_counted(state, now);
        let Some(too_much) = state.sum_from(first).checked_sub(max_before) else {
            return Wait::ZERO;
        };
        if too_much == 0 {
            return Wait::ZERO;
        }
        let before = state.total_before(first);
        let last_to_go = state.records.partition_point(|r| {
            let dropped = r.total.wrapping_sub(before);
            // Records before `first` lie behind `before`: their difference wraps to a huge number.
            dropped < too_much || dropped > state.sum_from(first)
        });
        match state.records.get(last_to_go) {
            Some(record) => Wait::until(record.stamp.saturating_add(self.window), now),
            None => Wait::ZERO,
        }
    }

    /// Takes `cost`, and drops what has expired.
    pub fn take(&self, state: &mut State, cost: u64, now: u64) {
        let stamp = self.stamp(self.not_before_the_last(state, now));
        self.drop_expired(state, now);
        let total = state.total().wrapping_add(cost);
        match state.records.back_mut() {
            Some(last) if last.stamp == stamp => last.total = total,
            _ => state.records.push_back(Record { stamp, total }),
        }
    }

    /// Gives `cost` back, newest records first. Nothing may be left: see [`State::is_empty`].
    pub fn give_back(&self, state: &mut State, cost: u64, now: u64) {
        self.drop_expired(state, now);
        let mut rest = cost;
        while let Some(last) = state.records.pop_back() {
            let own = last.total.wrapping_sub(state.total());
            if own > rest {
                let total = last.total.wrapping_sub(rest);
                state.records.push_back(Record { total, ..last });
                break;
            }
            rest -= own;
        }
    }

    /// Takes back what a take of `cost` at `at` has left: in the record of that time, if it still
    /// counts and is one of the newest [`MAX_UNDO`]. `false` if it is not, and nothing changes.
    /// Nothing may be left: see [`State::is_empty`].
    ///
    /// A clock behind the newest record takes into that one. If there is a record of `at` as well, what
    /// is taken back is of that, which counts for a shorter time.
    pub fn take_back(&self, state: &mut State, cost: u64, at: u64, now: u64) -> bool {
        let stamp = self.stamp(at);
        let first = self.first_counted(state, now).max(state.len().saturating_sub(MAX_UNDO));
        let Some(place) =
            state.records.binary_search_by_key(&stamp, |r| r.stamp).ok().filter(|&it| it >= first)
        else {
            return false;
        };
        let all = state.len();
        self.drop_expired(state, now);
        let place = place - (all - state.len());
        let own = state.total_before(place + 1).wrapping_sub(state.total_before(place));
        for record in state.records.range_mut(place..) {
            record.total = record.total.wrapping_sub(own.min(cost));
        }
        if own <= cost {
            state.records.remove(place);
        }
        true
    }

    /// How much would be admitted now, and when the newest record expires.
    #[must_use]
    pub fn level(&self, state: Option<&State>, now: u64) -> Level {
        let taken = state.map_or(0, |state| state.sum_from(self.first_counted(state, now)));
        Level {
            remaining: self.limit.saturating_sub(taken),
            recovers_at: state.map_or(now, |state| self.recovers_at(state)),
        }
    }

    /// When the state stops to matter.
    #[must_use]
    pub fn recovers_at(&self, state: &State) -> u64 {
        state.records.back().map_or(0, |last| last.stamp.saturating_add(self.window))
    }

    /// The time of the record that a request at `now` belongs to.
    fn stamp(&self, now: u64) -> u64 {
        match self.grain {
            0 => now,
            grain => now - now % grain + grain,
        }
    }

    /// The newest record's time (or its grain's start) where the clock is behind it.
    fn not_before_the_last(&self, state: &State, now: u64) -> u64 {
        state.records.back().map_or(now, |last| now.max(last.stamp.saturating_sub(self.grain)))
    }

    /// The index of the oldest record that counts.
    fn first_counted(&self, state: &State, now: u64) -> usize {
        let now = self.not_before_the_last(state, now);
        let has_expired = |record: &Record| record.stamp.saturating_add(self.window) <= now;
        // As each take drops them, there are mostly few.
        let few = state.records.iter().take(FEW).position(|record| !has_expired(record));
        few.unwrap_or_else(|| state.records.partition_point(has_expired))
    }

    fn drop_expired(&self, state: &mut State, now: u64) {
        let expired = self.first_counted(state, now);
        state.before = state.total_before(expired);
        if expired < FEW {
            for _ in 0..expired {
                state.records.pop_front();
            }
        } else {
            state.records.drain(..expired);
        }
        // A log that once was long gives its memory back, but not at every turn.
        if state.records.capacity() > 64 && state.records.len() < state.records.capacity() / 4 {
            state.records.shrink_to(state.records.len() * 2);
        }
    }
}

/// Totals may begin anywhere, as they wrap around: of two equal logs they need not be the same.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.records().eq(other.records())
    }
}

impl Eq for State {}

impl FromIterator<(u64, u64)> for State {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(records: I) -> Self {
        let mut total: u64 = 0;
        let record = |(stamp, cost)| {
            total = total.wrapping_add(cost);
            Record { stamp, total }
        };
        Self { records: records.into_iter().map(record).collect(), before: 0 }
    }
}

impl State {
    /// Whether no record is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many records there are, the expired included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }

    /// Bytes that one more record may add to [`heap_bytes`](Self::heap_bytes), at most.
    #[must_use]
    pub fn growth(&self) -> usize {
        if self.records.len() < self.records.capacity() {
            return 0;
        }
        self.records.capacity().max(4) * size_of::<Record>()
    }

    /// The time and the cost of each record, oldest first.
    pub fn records(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = std::iter::once(self.before).chain(self.records.iter().map(|r| r.total));
        self.records.iter().zip(before).map(|(r, before)| (r.stamp, r.total.wrapping_sub(before)))
    }

    fn total(&self) -> u64 {
        self.total_before(self.records.len())
    }

    fn total_before(&self, index: usize) -> u64 {
        match index.checked_sub(1).and_then(|previous| self.records.get(previous)) {
            Some(previous) => previous.total,
            None => self.before,
        }
    }

    fn sum_from(&self, index: usize) -> u64 {
        self.total().wrapping_sub(self.total_before(index))
    }
}
