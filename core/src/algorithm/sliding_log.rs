//! Sliding log: a record per admitted request, exact over any window of length `W`.
//!
//! Admits iff the costs of the records with `time > t − W`, plus `c`, are at most `L`. With a grain `g`, requests of one
//! grain share a record that is timed at the grain's end, so that it counts at least as long as each of them would:
//! never more than the exact log admits, with at most `W/g + 2` records.
//!
//! Records hold running totals instead of costs, so that the sum over a window is one subtraction, and its first record
//! is found by binary search: a decision takes `O(log n)`. A denial writes nothing, and does not even drop expired
//! records.

use std::collections::VecDeque;

use super::check::{LAST, amount, at_most, multiple};
use super::shape::StateShape;
use super::traits::{Algorithm, Level, Take};
use crate::time::{MAX_EXACT, Wait};

/// The number of newest records among which an undo searches for that of its take. An undo changes the totals of all
/// later records, so its cost has to be bounded.
pub const MAX_UNDO: usize = 128;

/// The maximum number of records in a log.
pub(crate) const MAX_RECORDS: u64 = 1 << 20;

/// Fewer expired records than this are found and dropped one by one.
const FEW: usize = 4;

/// The numbers of a sliding log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLogRule {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    /// Microseconds in a grain; 0 for the exact log.
    pub(crate) grain: u64,
}

/// The records, oldest first: collected from pairs of a time and a cost, as [`records`](Self::records) yields them.
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

impl SlidingLogRule {
    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window, in microseconds.
    #[must_use]
    pub const fn window_micros(&self) -> u64 {
        self.window
    }

    /// Microseconds in a grain; 0 for the exact log.
    #[must_use]
    pub const fn grain_micros(&self) -> u64 {
        self.grain
    }

    /// The maximum number of records of a state: each has a cost of at least 1, and each grain that overlaps the
    /// window has at most one.
    #[must_use]
    pub fn max_records(&self) -> u64 {
        match self.grain {
            0 => self.limit,
            grain => self.limit.min(self.window / grain + 2),
        }
    }

    /// How long until `cost` is admitted.
    pub(crate) fn wait_of(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        let Some(max_before) = self.limit.checked_sub(cost) else {
            return Wait::NEVER;
        };
        let Some(state) = state else { return Wait::ZERO };
        let first = self.first_counted(state, now);
        let excess = state.sum_from(first).saturating_sub(max_before);
        if excess == 0 {
            return Wait::ZERO;
        }
        let before = state.total_before(first);
        let last_to_go = state.records.partition_point(|r| {
            let dropped = r.total.wrapping_sub(before);
            // Records before `first` lie behind `before`: their difference wraps to a huge number.
            dropped < excess || dropped > state.sum_from(first)
        });
        match state.records.get(last_to_go) {
            Some(record) => Wait::between(now, record.stamp.saturating_add(self.window)),
            None => Wait::ZERO,
        }
    }

    /// Takes `cost`, and drops what has expired.
    pub(crate) fn add(&self, state: &mut State, cost: u64, now: u64) {
        let stamp = self.stamp(self.monotonic(state, now));
        self.drop_expired(state, now);
        let total = state.total().wrapping_add(cost);
        match state.records.back_mut() {
            Some(last) if last.stamp == stamp => last.total = total,
            _ => state.records.push_back(Record { stamp, total }),
        }
    }

    pub(crate) fn level_of(&self, state: Option<&State>, now: u64) -> Level {
        let taken = state.map_or(0, |state| self.taken(state, now));
        let recovers_at = state.map_or(now, |state| self.expiry_of_newest(state));
        Level::new(self.limit.saturating_sub(taken), recovers_at)
    }

    /// The sum of the costs that count.
    fn taken(&self, state: &State, now: u64) -> u64 {
        state.sum_from(self.first_counted(state, now))
    }

    fn expiry_of_newest(&self, state: &State) -> u64 {
        state.records.back().map_or(0, |last| last.stamp.saturating_add(self.window))
    }

    /// The time of the record that a request at `now` belongs to.
    fn stamp(&self, now: u64) -> u64 {
        match self.grain {
            0 => now,
            grain => now - now % grain + grain,
        }
    }

    /// `now`, or the time of the newest record (the start of its grain) if the clock is behind it.
    fn monotonic(&self, state: &State, now: u64) -> u64 {
        state.records.back().map_or(now, |last| now.max(last.stamp.saturating_sub(self.grain)))
    }

    /// The index of the oldest record that counts.
    fn first_counted(&self, state: &State, now: u64) -> usize {
        let now = self.monotonic(state, now);
        let has_expired = |record: &Record| record.stamp.saturating_add(self.window) <= now;
        // Each take drops expired records, so there are usually few.
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
        // A log that was long gives its memory back, but not at each call.
        if state.records.capacity() > 64 && state.records.len() < state.records.capacity() / 4 {
            state.records.shrink_to(state.records.len() * 2);
        }
    }
}

// The state is boxed, as a log alone would make every record of a store larger.
#[doc(hidden)]
impl Algorithm for SlidingLogRule {
    type State = Box<State>;

    const NAME: &'static str = "a sliding log";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn shape(&self) -> StateShape {
        StateShape::SlidingLog(self.window, self.grain)
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn max_retention(&self) -> u64 {
        self.window + self.grain
    }

    fn max_records(&self) -> u64 {
        self.max_records()
    }

    fn wait(&self, state: Option<&Self::State>, cost: u64, now: u64) -> Wait {
        self.wait_of(state.map(|state| &**state), cost, now)
    }

    fn take(
        &self,
        state: Option<Self::State>,
        cost: u64,
        now: u64,
        _: impl FnOnce() -> u64,
    ) -> Self::State {
        let mut state = state.unwrap_or_default();
        self.add(&mut state, cost, now);
        state
    }

    fn chargeable(&self, state: Option<&Self::State>, cost: u64, now: u64) -> u64 {
        let taken = state.map_or(0, |state| self.taken(state, now));
        cost.min(MAX_EXACT.saturating_sub(taken))
    }

    /// In the newest record, which moves to now, once there are as many as admitted costs can make: so charges beyond the
    /// limit need no more memory.
    fn charge(
        &self,
        state: Option<Self::State>,
        cost: u64,
        now: u64,
        _: impl FnOnce() -> u64,
    ) -> Self::State {
        let mut state = state.unwrap_or_default();
        let stamp = self.stamp(self.monotonic(&state, now));
        self.drop_expired(&mut state, now);
        let is_full = u64::try_from(state.len()).is_ok_and(|len| len >= self.max_records());
        match state.records.back_mut() {
            Some(last) if is_full => {
                *last = Record { stamp, total: last.total.wrapping_add(cost) };
            }
            _ => self.add(&mut state, cost, now),
        }
        state
    }

    /// Newest records first.
    fn give_back(&self, mut state: Self::State, cost: u64, now: u64) -> (Option<Self::State>, u64) {
        self.drop_expired(&mut state, now);
        let mut rest = cost;
        while let Some(last) = state.records.pop_back() {
            let own = last.total.wrapping_sub(state.total());
            if own > rest {
                let total = last.total.wrapping_sub(rest);
                state.records.push_back(Record { total, ..last });
                return (Some(state), cost);
            }
            rest -= own;
        }
        (None, cost - rest)
    }

    /// In the record of that time, if it still counts and is one of the newest [`MAX_UNDO`].
    ///
    /// A clock behind the newest record takes into that one. If there is a record of `at` as well, that one is reduced,
    /// which counts for a shorter time.
    fn take_back(
        &self,
        log: &mut Option<Self::State>,
        cost: u64,
        Take { at, .. }: Take,
        now: u64,
    ) -> Option<u64> {
        let state = log.as_mut()?;
        let stamp = self.stamp(at);
        let first = self.first_counted(state, now).max(state.len().saturating_sub(MAX_UNDO));
        let index = state.records.binary_search_by_key(&stamp, |r| r.stamp).ok();
        let index = index.filter(|&index| index >= first)?;
        let all = state.len();
        self.drop_expired(state, now);
        let index = index - (all - state.len());
        let own = state.total_before(index + 1).wrapping_sub(state.total_before(index));
        let amount = own.min(cost);
        for record in state.records.range_mut(index..) {
            record.total = record.total.wrapping_sub(amount);
        }
        if own <= cost {
            state.records.remove(index);
        }
        if state.is_empty() {
            *log = None;
        }
        Some(amount)
    }

    fn is_out_of_reach(&self, state: Option<&Self::State>, at: u64, now: u64) -> bool {
        let Some(state) = state else { return false };
        let stamp = self.stamp(at);
        let index = state.records.partition_point(|record| record.stamp < stamp);
        let oldest = state.records.get(self.first_counted(state, now));
        state.len() - index > MAX_UNDO && oldest.is_some_and(|oldest| oldest.stamp <= stamp)
    }

    fn level(&self, state: Option<&Self::State>, now: u64) -> Level {
        self.level_of(state.map(|state| &**state), now)
    }

    /// When the newest record expires.
    fn recovers_at(&self, state: &Self::State) -> u64 {
        self.expiry_of_newest(state)
    }

    fn check(&self, state: &Self::State) -> Result<(), String> {
        let len = u64::try_from(state.len()).unwrap_or(u64::MAX);
        if len == 0 {
            return Err("its log is empty, which is stored as no state".to_owned());
        }
        at_most("the number of its records is", len, MAX_RECORDS)?;
        let (mut before, mut sum) = (None, 0_u64);
        for (index, (stamp, cost)) in state.records().enumerate() {
            let what = || format!("the time of record {index} is");
            at_most(what, stamp, LAST + self.grain)?;
            if self.grain > 0 {
                multiple(what, stamp, self.grain, "the grain")?;
            }
            if let Some(before) = before.filter(|&before| stamp <= before) {
                return Err(format!(
                    "the time of record {index} is {stamp}, not after {before}, the time of the one before"
                ));
            }
            amount(|| format!("the cost of record {index} is"), cost)?;
            sum = sum.saturating_add(cost);
            at_most(|| format!("the costs up to record {index} add up to"), sum, MAX_EXACT)?;
            before = Some(stamp);
        }
        Ok(())
    }
}

/// Compares records: totals wrap around and may begin anywhere, so those of two equal logs may differ.
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
