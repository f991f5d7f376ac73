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
//!
//! **Top-ups.** A state can have grants and rolled-over quota in addition to the limit. A cost is
//! then admitted if and only if `count + c ≤ L + top-ups`. The state contains each grant as it was
//! at the start of the window. When a grant ends or the window ends, `count` is paid:
//!
//! * A grant that ends in the window pays first, when it ends. The rest of the grant is lost.
//! * At the end of the window, the rolled-over quota pays first, then the limit, then the grants
//!   that end later, in the order of their ends. A rest that exceeds all of them is forgiven.
//!
//! So the part that ends first is spent first, and a refund returns the part that was spent last.
//!
//! Credits are a quota with a single window that never ends.

mod top_ups;

use std::sync::Arc;

pub use top_ups::{Grant, MAX_GRANTS, REMEMBERED_WINDOWS, Rollover, TopUps};

use super::calendar::{Calendar, Unit, Window};
use super::check::{LAST, amount, at_most};
use super::rule::Rule;
use super::shape::StateShape;
use super::traits::{Algorithm, Level, Take};
use crate::time::{MAX_EXACT, Wait};

/// The ends of two windows that are the same differ by less than 26 hours. The offsets of two time
/// zones from UTC differ by at most this time: they are −12 to +14 hours.
pub const MAX_DRIFT: u64 = 26 * 3_600_000_000;

/// The end of a grant that lasts until it is spent. No clock reaches this time.
pub const FOREVER: u64 = MAX_EXACT;

/// A quota: its limit, its calendar and its rollover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaRule {
    /// The limit of the policy.
    pub(crate) limit: u64,
    /// The amount by which [`Policy::beyond_limit`](crate::Policy) raises the limit, or 0. This
    /// amount admits more. It is not pro-rated, pays for no charge, and does not roll over.
    pub(crate) raise: u64,
    pub(crate) calendar: Arc<Calendar>,
    pub(crate) rollover: Option<Rollover>,
    /// The start of the subscription, in microseconds since 1970, or 0 if the first window is not
    /// pro-rated.
    pub(crate) since: u64,
}

/// The state of a subject under a quota: the current window and its count. All times are in
/// microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The start of the current window, or the end of the last grant that has ended in this window.
    pub start: u64,
    /// The earliest end of the current window that a charge has named.
    pub earliest_end: u64,
    /// The latest end of the current window that a charge has named.
    pub end: u64,
    /// The cost that was charged in the current window, and that no ended grant has paid.
    pub count: u64,
    /// The part of `count` that was charged at `earliest_end` or later. It also counts in the next
    /// window.
    pub carry: u64,
    /// The grants and the rolled-over quota, if the subject has any or is remembered.
    pub top_ups: Option<Box<TopUps>>,
}

impl State {
    /// Creates the state of a window from `start` to `end`, in which `count` was charged.
    #[must_use]
    pub const fn new(start: u64, end: u64, count: u64) -> Self {
        Self { start, earliest_end: end, end, count, carry: 0, top_ups: None }
    }

    /// Adds what callers with different edges have named: the earliest end of the window, and the
    /// cost that was charged after it.
    #[must_use]
    pub fn with_drift(self, earliest_end: u64, carry: u64) -> Self {
        Self { earliest_end, carry, ..self }
    }

    /// Adds what the subject has in addition to the limit.
    #[must_use]
    pub fn with_top_ups(self, top_ups: TopUps) -> Self {
        Self { top_ups: Some(Box::new(top_ups)), ..self }
    }

    /// Returns the number of heap bytes that the state uses, without itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.top_ups.as_ref().map_or(0, |top_ups| top_ups.heap_bytes())
    }

    /// Returns the maximum number of bytes by which one more charge can increase
    /// [`heap_bytes`](Self::heap_bytes).
    pub(crate) fn growth(&self, rule: &Rule) -> usize {
        let rolls_over = matches!(rule, Rule::Quota(rule) if rule.rollover.is_some());
        if rolls_over && self.top_ups.is_none() { size_of::<TopUps>() } else { 0 }
    }

    fn sum_of_top_ups(&self) -> u64 {
        self.top_ups.as_ref().map_or(0, |top_ups| top_ups.sum())
    }

    /// Lets each grant pay and end that ends at `until` or earlier.
    fn end_grants(mut self, until: u64) -> Self {
        while let Some(top_ups) = &mut self.top_ups
            && let Some(grant) = top_ups.pop_ended(until)
        {
            self.count = self.count.saturating_sub(grant.amount);
            self.carry = self.carry.min(self.count);
            self.start = self.start.max(grant.ends_at);
        }
        self
    }

    /// Returns this state, or `None` if nothing is charged and no grant was open in the window. If
    /// a grant has ended in the window, the state stays, because it has the end of the grant.
    fn unless_empty(self) -> Option<Self> {
        (self.count > 0 || self.top_ups.is_some()).then_some(self)
    }

    /// Returns this state after a refund, or `None` if nothing remains charged, and the refunded
    /// amount. The part that also counts in the next window is refunded last.
    fn without(self, cost: u64) -> (Option<Box<Self>>, u64) {
        let amount = cost.min(self.count);
        let count = self.count - amount;
        let carry = self.carry.min(count);
        (Self { count, carry, ..self }.unless_empty().map(Box::new), amount)
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
        self.limit + self.raise
    }

    /// Returns `true` if the limit is raised for charges that are counted beyond the limit.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_raised(&self) -> bool {
        self.raise > 0
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

    /// Returns the limit of the policy in `window`, which is lower in a pro-rated window.
    fn limit_in(&self, window: Window) -> u64 {
        top_ups::pro_rated(self.limit, self.since, window)
    }

    /// Returns the limit at `now`, which is lower in a pro-rated window.
    #[must_use]
    pub fn limit_at(&self, now: u64) -> u64 {
        self.policy_limit_at(now) + self.raise
    }

    /// Returns the limit of the policy at `now`, which is [`limit_at`](Self::limit_at) if the limit
    /// is not [raised](Self::is_raised).
    #[doc(hidden)]
    #[must_use]
    pub fn policy_limit_at(&self, now: u64) -> u64 {
        if self.since == 0 { self.limit } else { self.limit_in(self.window_at(now)) }
    }

    /// Returns the maximum count in `window` of a subject that has `top_ups`. A raised limit is the
    /// largest count that a state can have.
    fn most_in(&self, window: Window, top_ups: u64) -> u64 {
        if self.is_raised() { MAX_EXACT } else { with_top_ups(self.limit_in(window), top_ups) }
    }

    /// Returns the first time from `now` that is not in a pro-rated window. The window that begins
    /// exactly at the start of the subscription is not pro-rated.
    fn full_at(&self, now: u64) -> u64 {
        if self.since == 0 || self.since <= self.window_at(now).start {
            return now;
        }
        let first = self.calendar.compute_window_at(self.since.max(now));
        if self.since <= first.start { first.start } else { first.end }
    }

    /// Returns `true` if the quota is pro-rated in one of its windows.
    pub(crate) fn is_pro_rated(&self) -> bool {
        self.since > 0
    }

    /// Returns the part of the unused quota that rolls over, if any.
    #[must_use]
    pub const fn rollover(&self) -> Option<Rollover> {
        self.rollover
    }

    /// Adds a grant to a state. A grant that has ended changes nothing. Returns the unchanged state
    /// as the error if the state has too many open grants.
    pub(crate) fn grant(
        &self,
        state: Option<Box<State>>,
        grant: Grant,
        now: u64,
    ) -> Result<Option<Box<State>>, Option<Box<State>>> {
        if grant.ends_at <= now || grant.amount == 0 {
            return Ok(state);
        }
        let mut current = self.at_or_new(state.as_deref(), now);
        let mut top_ups = *current.top_ups.take().unwrap_or_default();
        top_ups.limit = self.policy_limit_at(now);
        if !top_ups.add(grant) {
            return Err(state);
        }
        Ok(Some(Box::new(current.with_top_ups(top_ups))))
    }

    /// Returns the amount that remains at `now` if nothing is used: the limit, the open grants and
    /// the rolled-over quota.
    #[doc(hidden)]
    #[must_use]
    pub fn total(&self, state: Option<&State>, now: u64) -> u64 {
        let current = self.at(state, now);
        with_top_ups(self.limit_at(now), current.map_or(0, |state| state.sum_of_top_ups()))
    }

    /// Returns the state in the window that contains `now`. Returns `None` if nothing is charged in
    /// this window, and the subject has no top-ups.
    fn at(&self, state: Option<&State>, now: u64) -> Option<State> {
        self.within(state?, self.window_at(now), now)
    }

    fn at_or_new(&self, state: Option<&State>, now: u64) -> State {
        self.at(state, now).unwrap_or_else(|| {
            let window = self.window_at(now);
            State::new(window.start, window.end, 0)
        })
    }

    /// Returns the result of [`at`](Self::at) for a time `now` in `window`.
    fn within(&self, state: &State, window: Window, now: u64) -> Option<State> {
        let mut state = state.clone();
        if state.is_same(window) {
            state.earliest_end = state.earliest_end.min(window.end);
            state.end = state.end.max(window.end);
        } else if now >= state.end {
            let next = self.next(state, window).end_grants(now);
            // No grant that has ended has paid for a charge in the new window.
            let top_ups = next.top_ups.filter(|top_ups| !top_ups.is_empty());
            return State { start: window.start, top_ups, ..next }.unless_empty();
        }
        state.end_grants(now).unless_empty()
    }

    /// Returns the state at the start of `window`, which begins after the window of `state`.
    fn next(&self, state: State, window: Window) -> State {
        let is_next = is_drift(window.start, state.end, window);
        let end = state.end;
        let mut ended = state.end_grants(end);
        if let Some(top_ups) = &mut ended.top_ups {
            let unused = top_ups.pay(ended.count);
            let unused = if is_next { unused } else { self.limit_in(window) };
            let rollover = self.rollover.filter(|_| window.start < top_ups.remembered_until);
            let rolled_over = rollover.map_or(0, |rollover| rollover.part_of(unused));
            top_ups.rolled_over = rolled_over.min(MAX_EXACT - top_ups.sum());
            if window.start >= top_ups.remembered_until {
                top_ups.remembered_until = 0;
            }
        }
        let count = if is_next { ended.carry } else { 0 };
        State { top_ups: ended.top_ups, ..State::new(window.start, window.end, count) }
    }

    /// Returns the first time from `now` at which the cost is admitted, or `None` if it is never
    /// admitted. Until then, no call changes the state.
    fn admits_at(&self, cost: u64, state: Option<&State>, now: u64) -> Option<u64> {
        let mut then = now;
        // After a few windows, neither the quota of a window nor the rolled-over quota grows any
        // more. Grants only end.
        for number in 0..MAX_WINDOWS {
            let is_first = then == now;
            let window =
                if is_first { self.window_at(now) } else { self.calendar.compute_window_at(then) };
            let current = state.and_then(|state| self.within(state, window, then));
            let (count, extra, end) = match &current {
                Some(state) => (state.count, state.sum_of_top_ups(), state.end),
                None => (0, 0, window.end),
            };
            if count.saturating_add(cost) <= self.most_in(window, extra) {
                return Some(then);
            }
            if self.unit() == Unit::Ever || current.is_none() && cost > self.limit() {
                return None;
            }
            then = end;
            // In the windows before the start of the subscription, no quota is added.
            if number >= MAX_WINDOWS / 2 && window.end <= self.since {
                then = then.max(self.calendar.compute_window_at(self.since).start);
            }
            // Usually all callers have named the same end, and the next window is empty.
            let is_plain = |state: &State| state.carry == 0 && state.top_ups.is_none();
            let is_next_full = cost <= self.limit() && window.end > self.since;
            if window.end == end && is_next_full && state.is_none_or(is_plain) {
                return Some(then);
            }
        }
        None
    }
}

/// Returns the maximum count of a window. A state cannot count more than [`MAX_EXACT`].
fn with_top_ups(limit: u64, top_ups: u64) -> u64 {
    (limit + top_ups).min(MAX_EXACT)
}

/// The number of windows in which [`QuotaRule::admits_at`] looks for room for a cost.
const MAX_WINDOWS: usize = 6;

#[doc(hidden)]
impl Algorithm for QuotaRule {
    type State = Box<State>;

    const NAME: &'static str = "a quota";

    fn limit(&self) -> u64 {
        self.limit()
    }

    fn shape(&self) -> StateShape {
        StateShape::Quota(self.unit())
    }

    fn window(&self) -> u64 {
        self.unit().max_micros()
    }

    fn max_retention(&self) -> u64 {
        let windows = if self.rollover.is_some() { 1 + REMEMBERED_WINDOWS } else { 2 };
        windows.saturating_mul(self.unit().max_micros() + MAX_DRIFT)
    }

    fn wait(&self, state: Option<&Box<State>>, cost: u64, now: u64) -> Wait {
        match self.admits_at(cost, state.map(|state| &**state), now) {
            Some(then) => Wait::between(now, then),
            None => Wait::NEVER,
        }
    }

    fn take(
        &self,
        state: Option<Box<State>>,
        cost: u64,
        now: u64,
        _: impl FnOnce() -> u64,
    ) -> Box<State> {
        let mut state = self.at_or_new(state.as_deref(), now);
        state.count = state.count.saturating_add(cost);
        if now >= state.earliest_end {
            state.carry = state.carry.saturating_add(cost);
        }
        if self.rollover.is_some() || state.top_ups.is_some() {
            let top_ups = state.top_ups.get_or_insert_default();
            top_ups.limit = self.policy_limit_at(now);
            let remembered = REMEMBERED_WINDOWS * self.unit().max_micros();
            top_ups.remembered_until = self.rollover.map_or(0, |_| state.end + remembered);
        }
        Box::new(state)
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
        let has_charge = |state: &State| {
            state.count > 0 && state.start <= at && at < state.end && now < state.end
        };
        let current = state.as_deref()?.clone().end_grants(now);
        let current = Some(current).filter(has_charge)?;
        let (rest, amount) = current.without(cost);
        *state = rest;
        Some(amount)
    }

    fn level(&self, state: Option<&Box<State>>, now: u64) -> Level {
        let limit = self.limit_at(now);
        let full_at = self.full_at(now);
        match self.at(state.map(|state| &**state), now) {
            Some(state) => {
                let total = with_top_ups(limit, state.sum_of_top_ups());
                let remaining = total.saturating_sub(state.count);
                let recovers_at = if state.count > 0 { full_at.max(state.end) } else { full_at };
                Level::new(remaining, recovers_at)
            }
            None => Level::new(limit, full_at),
        }
    }

    /// Returns the time from which no window of a caller is the same as the window of the state. If
    /// a part of the state counts in the next window too, this is the end of that window.
    fn recovers_at(&self, state: &Box<State>) -> u64 {
        let next = if state.carry > 0 { self.unit().max_micros() + MAX_DRIFT } else { 0 };
        let recovers_at = state.end + MAX_DRIFT + next;
        match &state.top_ups {
            Some(top_ups) => recovers_at.max(top_ups.recovers_at(self.unit())),
            None => recovers_at,
        }
    }

    fn check(&self, state: &Box<State>) -> Result<(), String> {
        let State { start, earliest_end, end, count, carry, ref top_ups } = **state;
        let max_length = self.unit().max_micros() + MAX_DRIFT;
        at_most("its window ends at", end, LAST + max_length)?;
        at_most("the earliest end of its window is", earliest_end, end)?;
        // The end of a grant in the window can be later than the earliest end.
        at_most("its window starts at", start, if top_ups.is_some() { end } else { earliest_end })?;
        at_most("the length of its window is", end - start, max_length)?;
        // A charge counts in the next window too only between the two ends.
        let max_carry = if earliest_end < end { count } else { 0 };
        at_most("the cost that counts in the next window too is", carry, max_carry)?;
        match top_ups {
            Some(top_ups) => {
                top_ups.check().and_then(|()| at_most("its count is", count, MAX_EXACT))
            }
            None => amount("its count is", count),
        }
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
            QuotaRule { limit: LIMIT, raise: 0, calendar, rollover: None, since: 0 }
        })
    }

    /// A call: the database of the caller, the hours since the last call, and the cost.
    type Step = (usize, u64, u64);

    fn steps(unit: Unit) -> impl Strategy<Value = Vec<Step>> {
        let day = match unit {
            Unit::Day => 1_u64,
            Unit::Week => 7,
            Unit::Month => 30,
            Unit::Year | Unit::Ever => 365,
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
