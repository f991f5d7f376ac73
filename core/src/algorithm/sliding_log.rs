//! Sliding log: exactly at most `L` in any window of length `W`. A log keeps a record per admitted
//! request.
//!
//! A cost `c` is admitted at time `t` if and only if the sum of the costs of all records after `t −
//! W`, plus `c`, is at most `L`.
//!
//! With a grain `g`, all requests within one grain share a record, and the time of the record is
//! the end of the grain. So each request counts at least as long as in a log without a grain, and
//! the log never admits more. A log with a grain has at most `W/g + 2` records.
//!
//! A record stores the running total of all costs up to this record. So the sum over a window is
//! one subtraction. A binary search finds the first record of the window, so a decision takes
//! `O(log n)`. A denial writes nothing, and does not even drop expired records.
//!
//! Source: folklore. The condition for an admission is the definition of "at most `L` in any window
//! of length `W`".

use std::collections::VecDeque;

use super::check::{LAST, amount, at_most, multiple};
use super::shape::StateShape;
use super::traits::{Algorithm, Level, Take};
use crate::time::{MAX_EXACT, Wait};

/// The maximum number of records that an undo searches for the record of its charge, newest first.
/// The bound limits the work, because an undo changes the totals of all later records.
pub const MAX_UNDO: usize = 128;

pub(crate) const MAX_RECORDS: u64 = 1 << 20;

/// The number of oldest records that are checked one by one. If all of them have expired, a binary
/// search checks the other records.
const FEW: usize = 4;

/// A sliding log: its limit, its window and its grain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLogRule {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    pub(crate) grain: u64,
}

/// The state of a subject under a sliding log: the records, oldest first. `collect` creates a state
/// from pairs of a time and a cost, as [`records`](Self::records) returns them.
#[derive(Debug, Clone, Default)]
pub struct State {
    records: VecDeque<Record>,
    /// The running total of all costs before the oldest record.
    before: u64,
}

/// A record of the requests that were admitted at one time, or within one grain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    stamp: u64,
    /// The running total of the costs, up to and including this record. The total wraps around, so
    /// only the difference of two totals has a meaning.
    total: u64,
}

impl SlidingLogRule {
    /// Returns the maximum cost in any window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window in microseconds.
    #[must_use]
    pub const fn window_micros(&self) -> u64 {
        self.window
    }

    /// Returns the length of a grain in microseconds, or 0 for a log without a grain.
    #[must_use]
    pub const fn grain_micros(&self) -> u64 {
        self.grain
    }

    /// Returns the maximum number of records in a state. Each record has a cost of at least 1, and
    /// a log with a grain has at most one record for each grain.
    #[must_use]
    pub fn max_records(&self) -> u64 {
        match self.grain {
            0 => self.limit,
            grain => self.limit.min(self.window / grain + 2),
        }
    }

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
        // The cost is admitted when the record at the index `last_to_expire` and all earlier
        // records have expired.
        let last_to_expire = state.records.partition_point(|record| {
            let dropped = record.total.wrapping_sub(before);
            // `dropped` is the cost of the records from `first` to this record. For a record before
            // `first`, the subtraction wraps around to a huge number, so the second condition skips
            // the record.
            dropped < excess || dropped > state.sum_from(first)
        });
        match state.records.get(last_to_expire) {
            Some(record) => Wait::between(now, record.stamp.saturating_add(self.window)),
            None => Wait::ZERO,
        }
    }

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
        let used = state.map_or(0, |state| self.used(state, now));
        let recovers_at = state.map_or(now, |state| self.expiry_of_newest(state));
        Level::new(self.limit.saturating_sub(used), recovers_at)
    }

    fn used(&self, state: &State, now: u64) -> u64 {
        state.sum_from(self.first_counted(state, now))
    }

    fn expiry_of_newest(&self, state: &State) -> u64 {
        state.records.back().map_or(0, |last| last.stamp.saturating_add(self.window))
    }

    /// Returns the time that is stored in the record of a request at `now`.
    fn stamp(&self, now: u64) -> u64 {
        match self.grain {
            0 => now,
            grain => now - now % grain + grain,
        }
    }

    /// Returns `now`, or a later time if the clock has stepped back. The result is never before the
    /// newest record (with a grain, never before the start of that record's grain).
    fn monotonic(&self, state: &State, now: u64) -> u64 {
        state.records.back().map_or(now, |last| now.max(last.stamp.saturating_sub(self.grain)))
    }

    fn first_counted(&self, state: &State, now: u64) -> usize {
        let now = self.monotonic(state, now);
        let has_expired = |record: &Record| record.stamp.saturating_add(self.window) <= now;
        // Usually only few records have expired, because each charge drops the expired records. So
        // the oldest records are checked one by one, before a binary search over all records.
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
        // Frees memory if less than a quarter of the allocated memory is used. The condition is
        // rarely met, so that most calls do not reallocate.
        if state.records.capacity() > 64 && state.records.len() < state.records.capacity() / 4 {
            state.records.shrink_to(state.records.len() * 2);
        }
    }
}

// The state is boxed, because an unboxed log would enlarge every record of a store.
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
        let used = state.map_or(0, |state| self.used(state, now));
        cost.min(MAX_EXACT.saturating_sub(used))
    }

    /// Charges a cost beyond the limit. If the log has the maximum number of records, the cost is
    /// added to the newest record, and the time of that record becomes `now`. So the charge needs
    /// no additional memory.
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

    fn refund(&self, mut state: Self::State, cost: u64, now: u64) -> (Option<Self::State>, u64) {
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

    /// Refunds the cost from the record with the time of the charge. Refunds nothing if this record
    /// has expired, or if it is not one of the newest [`MAX_UNDO`] records.
    ///
    /// If the clock stepped back before the charge, the charge increased the newest record, whose
    /// time is after `at`. The undo still refunds from a record with the time `at`, or refunds
    /// nothing if there is no such record. The refund is then too small, because an older record
    /// counts for a shorter time.
    fn undo(
        &self,
        log: &mut Option<Self::State>,
        cost: u64,
        Take { at, .. }: Take,
        now: u64,
    ) -> Option<u64> {
        let state = log.as_mut()?;
        let stamp = self.stamp(at);
        let first = self.first_counted(state, now).max(state.len().saturating_sub(MAX_UNDO));
        let index = state.records.binary_search_by_key(&stamp, |record| record.stamp).ok();
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

    fn recovers_at(&self, state: &Self::State) -> u64 {
        self.expiry_of_newest(state)
    }

    fn check(&self, state: &Self::State) -> Result<(), String> {
        let len = u64::try_from(state.len()).unwrap_or(u64::MAX);
        if len == 0 {
            return Err("its log is empty; it must be stored as no state".to_owned());
        }
        at_most("the number of its records is", len, MAX_RECORDS)?;
        let (mut before, mut sum) = (None, 0_u64);
        for (index, (stamp, cost)) in state.records().enumerate() {
            at_most(format_args!("the time of record {index} is"), stamp, LAST + self.grain)?;
            if self.grain > 0 {
                multiple(
                    format_args!("the time of record {index} is"),
                    stamp,
                    self.grain,
                    "the grain",
                )?;
            }
            if let Some(before) = before.filter(|&before| stamp <= before) {
                return Err(format!(
                    "the time of record {index} is {stamp}; it must be after {before}, the time of the \
                     previous record"
                ));
            }
            amount(format_args!("the cost of record {index} is"), cost)?;
            sum = sum.saturating_add(cost);
            at_most(format_args!("the costs up to record {index} add up to"), sum, MAX_EXACT)?;
            before = Some(stamp);
        }
        Ok(())
    }
}

/// Compares the times and the costs of the records, not their totals. Two equal logs can have
/// different totals, because the totals can begin at different numbers.
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
    /// Returns `true` if the log has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of records in the log, including expired records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the number of heap bytes that the records use.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }

    /// Returns the maximum number of bytes by which one more record can increase
    /// [`heap_bytes`](Self::heap_bytes).
    #[must_use]
    pub fn growth(&self) -> usize {
        if self.records.len() < self.records.capacity() {
            return 0;
        }
        self.records.capacity().max(4) * size_of::<Record>()
    }

    /// Returns the time and the cost of each record, oldest first.
    pub fn records(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let totals = self.records.iter().map(|record| record.total);
        let before = std::iter::once(self.before).chain(totals);
        let cost =
            |(record, before): (&Record, u64)| (record.stamp, record.total.wrapping_sub(before));
        self.records.iter().zip(before).map(cost)
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
