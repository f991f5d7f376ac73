//! Quota: at most `L` in each window of a [calendar](super::calendar), such as a month.
//!
//! A cost `c` is admitted if and only if `count + c ≤ L`, where `count` is the cost that was
//! charged in the current window. A quota is a fixed window whose windows differ in length.
//!
//! **Callers that disagree.** Two processes can have different versions of the time zone database,
//! or different settings during a deployment. They then disagree about the edges of a window. The
//! state keeps the earliest and the latest end that a charge has named, and these rules:
//!
//! * Two windows are *the same* if their ends differ by less than half of the window and by less
//!   than 26 hours (two zones differ by at most 26 hours). A charge in the same window moves the
//!   end of the state to the later of the two ends.
//! * A charge with another window counts in the window of the state until that window ends. Only
//!   then, its own window opens. So the count starts again at most once per edge, and no caller
//!   waits longer than 26 hours after its own edge.
//! * A charge after the earliest end counts in the next window too, because for some callers it
//!   belongs to that window.
//!
//! If all callers have the same edges, these rules have no effect.

use std::sync::Arc;

use super::calendar::{Calendar, Unit, Window};
use super::check::{LAST, amount, at_most};
use super::shape::StateShape;
use super::traits::{Algorithm, Level, Take};
use crate::time::{MAX_EXACT, Wait};

/// The ends of two windows that are the same differ by less than 26 hours. The offsets of two time
/// zones from UTC differ by at most this time: they are −12 to +14 hours.
pub const MAX_DRIFT: u64 = 26 * 3_600_000_000;

/// A quota: its limit and its calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaRule {
    pub(crate) limit: u64,
    pub(crate) calendar: Arc<Calendar>,
}

/// The state of a subject under a quota: the current window and its count. All times are in
/// microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The start of the current window.
    pub start: u64,
    /// The earliest end of the current window that a charge has named.
    pub earliest_end: u64,
    /// The latest end of the current window that a charge has named.
    pub end: u64,
    /// The cost that was charged in the current window.
    pub count: u64,
    /// The part of `count` that was charged at `earliest_end` or later. It also counts in the next
    /// window.
    pub carry: u64,
}

impl State {
    /// Creates the state of a window from `start` to `end`, in which `count` was charged.
    #[must_use]
    pub const fn new(start: u64, end: u64, count: u64) -> Self {
        Self { start, earliest_end: end, end, count, carry: 0 }
    }

    /// Adds what callers with different edges have named: the earliest end of the window, and the
    /// cost that was charged after it.
    #[must_use]
    pub const fn with_drift(self, earliest_end: u64, carry: u64) -> Self {
        Self { earliest_end, carry, ..self }
    }

    /// Returns this state after a refund, or `None` if nothing remains charged, and the refunded
    /// amount. The part that also counts in the next window is refunded last.
    fn without(self, cost: u64) -> (Option<Box<Self>>, u64) {
        let amount = cost.min(self.count);
        let count = self.count - amount;
        let carry = self.carry.min(count);
        ((count > 0).then(|| Box::new(Self { count, carry, ..self })), amount)
    }

    /// Returns `true` if `window` is the window of this state, see the [module](self).
    fn is_same(&self, window: Window) -> bool {
        is_drift(self.end, window.end, window) && is_drift(window.end, self.earliest_end, window)
    }
}

/// Returns `true` if two callers can name these two times for the same edge of `window`.
fn is_drift(later: u64, earlier: u64, window: Window) -> bool {
    let drift = later.saturating_sub(earlier);
    drift < MAX_DRIFT && 2 * drift < window.micros()
}

impl QuotaRule {
    /// Returns the limit per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the unit of the windows.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.calendar.unit()
    }

    /// Returns the window that contains `now`, in microseconds since 1970.
    #[must_use]
    pub fn window_at(&self, now: u64) -> Window {
        self.calendar.window_at(now)
    }

    /// Returns the state in the window that contains `now`, or `None` if nothing is charged in this
    /// window.
    fn at(&self, state: Option<&State>, now: u64) -> Option<State> {
        self.within(state?, self.window_at(now), now)
    }

    /// Returns the result of [`at`](Self::at) for a time `now` in `window`.
    fn within(&self, &state: &State, window: Window, now: u64) -> Option<State> {
        if state.is_same(window) {
            let (earliest_end, end) =
                (state.earliest_end.min(window.end), state.end.max(window.end));
            return Some(State { earliest_end, end, ..state });
        }
        if now < state.end {
            return Some(state);
        }
        let is_next = is_drift(window.start, state.end, window);
        (is_next && state.carry > 0).then(|| State::new(window.start, window.end, state.carry))
    }

    /// Returns the first time from `now` at which at most `max` is charged in the current window.
    /// Until then, no call changes the state.
    fn falls_to(&self, max: u64, state: Option<&State>, now: u64) -> u64 {
        let (Some(state), window) = (state, self.window_at(now)) else { return now };
        let mut current = self.within(state, window, now);
        let mut then = now;
        while let Some(State { count, end, .. }) = current
            && count > max
        {
            then = end;
            // Usually all callers have named the same end, and the next window is empty.
            let is_last = state.carry == 0 && window.end == then;
            let next = || self.within(state, self.calendar.compute_window_at(then), then);
            current = if is_last { None } else { next() };
        }
        then
    }
}

#[doc(hidden)]
impl Algorithm for QuotaRule {
    type State = Box<State>;

    const NAME: &'static str = "a quota";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn shape(&self) -> StateShape {
        StateShape::Quota(self.unit())
    }

    fn window(&self) -> u64 {
        self.unit().max_micros()
    }

    fn max_retention(&self) -> u64 {
        2 * (self.unit().max_micros() + MAX_DRIFT)
    }

    fn wait(&self, state: Option<&Box<State>>, cost: u64, now: u64) -> Wait {
        match self.limit.checked_sub(cost) {
            None => Wait::NEVER,
            Some(max) => Wait::between(now, self.falls_to(max, state.map(|state| &**state), now)),
        }
    }

    fn take(
        &self,
        state: Option<Box<State>>,
        cost: u64,
        now: u64,
        _: impl FnOnce() -> u64,
    ) -> Box<State> {
        let state = self.at(state.as_deref(), now).unwrap_or_else(|| {
            let window = self.window_at(now);
            State::new(window.start, window.end, 0)
        });
        let carried = if now >= state.earliest_end { cost } else { 0 };
        Box::new(State {
            count: state.count.saturating_add(cost),
            carry: state.carry.saturating_add(carried),
            ..state
        })
    }

    fn chargeable(&self, state: Option<&Box<State>>, cost: u64, now: u64) -> u64 {
        let count = self.at(state.map(|state| &**state), now).map_or(0, |state| state.count);
        cost.min(MAX_EXACT.saturating_sub(count))
    }

    fn refund(&self, state: Box<State>, cost: u64, now: u64) -> (Option<Box<State>>, u64) {
        match self.at(Some(&state), now) {
            Some(state) => state.without(cost),
            None => (None, 0),
        }
    }

    /// Refunds the cost if the charge was made in the window of the state, and the window has not
    /// ended. A charge counts in full until its window ends. The windows of the caller do not
    /// matter, because a store undoes the charge of a lapsed hold without a caller.
    fn undo(
        &self,
        state: &mut Option<Box<State>>,
        cost: u64,
        Take { at, .. }: Take,
        now: u64,
    ) -> Option<u64> {
        let has_charge = |state: &State| state.start <= at && at < state.end && now < state.end;
        let current = state.as_deref().copied().filter(has_charge)?;
        let (rest, amount) = current.without(cost);
        *state = rest;
        Some(amount)
    }

    fn level(&self, state: Option<&Box<State>>, now: u64) -> Level {
        match self.at(state.map(|state| &**state), now) {
            Some(State { end, count, .. }) => Level::new(self.limit.saturating_sub(count), end),
            None => Level::new(self.limit, now),
        }
    }

    /// Returns the time from which no window of a caller is the same as the window of the state. If
    /// a part of the state counts in the next window too, this is the end of that window.
    fn recovers_at(&self, state: &Box<State>) -> u64 {
        let next = if state.carry > 0 { self.unit().max_micros() + MAX_DRIFT } else { 0 };
        state.end + MAX_DRIFT + next
    }

    fn check(&self, state: &Box<State>) -> Result<(), String> {
        let State { start, earliest_end, end, count, carry } = **state;
        let max_length = self.unit().max_micros() + MAX_DRIFT;
        at_most("its window ends at", end, LAST + max_length)?;
        at_most("the earliest end of its window is", earliest_end, end)?;
        at_most("its window starts at", start, earliest_end)?;
        at_most("the length of its window is", end - start, max_length)?;
        // A charge counts in the next window too only between the two ends.
        let max_carry = if earliest_end < end { count } else { 0 };
        at_most("the cost that counts in the next window too is", carry, max_carry)?;
        amount("its count is", count)
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600_000_000;
    /// January 1, 2026.
    const START: u64 = 1_767_225_600_000_000;
    const LIMIT: u64 = 9;

    /// The rules of a zone in two versions of the time zone database.
    const VERSIONS: [[&str; 2]; 6] = [
        ["CET-1CEST,M3.5.0,M10.5.0/3", "CET-1"], // without daylight saving time
        ["CET-1CEST,M3.5.0,M10.5.0/3", "CET-1CEST,M3.4.0,M10.4.0/3"], // a week earlier
        ["EET-2EEST,M3.5.0/0,M10.5.0/0", "EET-2EEST,M4.3.5/0,M10.5.4/24"],
        ["UTC0", "<+0530>-5:30"],
        ["<-11>11", "<+13>-13"], // the other side of the date line
        ["CET-1CEST,M3.5.0,M10.5.0/3", "CET-1CEST,M3.5.0,M10.5.0/3"],
    ];

    fn rules(unit: Unit, zones: [&str; 2]) -> [QuotaRule; 2] {
        zones.map(|zone| {
            let zone = TimeZone::posix(zone).expect("valid rules");
            let calendar = Arc::new(Calendar::new(unit, zone, date(1970, 1, 1).at(0, 30, 0, 0)));
            QuotaRule { limit: LIMIT, calendar }
        })
    }

    /// A call: the database of the caller, the hours since the last call, and the cost.
    type Step = (usize, u64, u64);

    fn steps(unit: Unit) -> impl Strategy<Value = Vec<Step>> {
        let day = match unit {
            Unit::Day => 1_u64,
            Unit::Week => 7,
            Unit::Month => 30,
            Unit::Year => 365,
        };
        let hours = prop_oneof![4 => 0..4_u64, 3 => 0..30 * day, 1 => 20 * day..27 * day];
        prop::collection::vec((0..2_usize, hours, 1..4_u64), 1..80)
    }

    fn case() -> impl Strategy<Value = (Unit, usize, u64, Vec<Step>)> {
        (prop::sample::select(&Unit::ALL[..]), 0..VERSIONS.len(), 0..9_000_u64)
            .prop_flat_map(|(unit, zones, hour)| (Just(unit), Just(zones), Just(hour), steps(unit)))
    }

    proptest! {
        /// Two callers with different versions of the database share a state.
        ///
        /// * The count starts again at most once per edge of a database.
        /// * A caller whose database has named an end gets at most the limit in the next window of
        ///   its database.
        /// * A denied cost is admitted after the wait, and not before.
        /// * A wait ends at most 26 hours after the edge that follows the next edge of the caller.
        #[test]
        fn callers_with_different_databases_mint_no_quota((unit, zones, hour, steps) in case()) {
            let rules = rules(unit, VERSIONS[zones]);
            let (first, mut now) = (START + hour * HOUR, START + hour * HOUR);
            let mut state: Option<Box<State>> = None;
            let mut openings = 0;
            // The windows whose ends the callers have named, for each database.
            let mut named: [Vec<Window>; 2] = Default::default();
            let mut admitted: Vec<(u64, u64)> = vec![];
            for (caller, hours, cost) in steps {
                now += hours * HOUR;
                let rule = &rules[caller];
                let window = rule.window_at(now);
                let wait = rule.wait(state.as_ref(), cost, now);
                let Some(duration) = wait.as_duration().filter(|wait| !wait.is_zero()) else {
                    let before = state.as_ref().map(|state| state.start);
                    let taken = rule.take(state.take(), cost, now, || 0);
                    openings += u64::from(before != Some(taken.start));
                    if (taken.earliest_end..=taken.end).contains(&window.end) {
                        named[caller].push(window);
                    }
                    state = Some(taken);
                    admitted.push((now, cost));
                    continue;
                };
                let then = now + u64::try_from(duration.as_micros()).expect("a wait of days");
                let at = |time| rule.wait(state.as_ref(), cost, time).is_zero();
                prop_assert!(at(then), "denied again at {then}");
                prop_assert!(!at(then - 1), "already admitted at {}", then - 1);
                let next = rule.calendar.compute_window_at(window.end);
                prop_assert!(then <= next.end + MAX_DRIFT, "a wait until {then} after {now}");
            }
            let edges = rules.iter().map(|rule| {
                let mut window = rule.window_at(first);
                let mut count = 0;
                while window.end <= now {
                    window = rule.calendar.compute_window_at(window.end);
                    count += 1;
                }
                count
            });
            let edges: u64 = edges.max().unwrap_or(0);
            prop_assert!(openings <= 1 + edges, "{openings} windows were opened over {edges} edges");
            for named in &named {
                for pair in named.windows(2) {
                    let (before, window) = (pair[0], pair[1]);
                    if before.end != window.start {
                        continue;
                    }
                    let in_window = admitted.iter().filter(|(at, _)| window.contains(*at));
                    let sum: u64 = in_window.map(|(_, cost)| cost).sum();
                    prop_assert!(sum <= LIMIT, "{sum} in the window from {}", window.start);
                }
            }
        }
    }
}
