//! A record made anew from what a store has kept of it elsewhere: in a file, or on a server.

use super::{Record, State};
use crate::algorithm::fixed_window::{self, FixedWindow, Start};
use crate::algorithm::interval_bucket;
use crate::algorithm::sliding_counter::{self, SlidingCounter};
use crate::algorithm::sliding_log::{self, SlidingLog};
use crate::algorithm::token_bucket;
use crate::policy::Rule;
use crate::time::{MAX_EXACT, MAX_SPAN};
use crate::{Error, ErrorKind, Policy, Timestamp, policy};

impl Record {
    /// A record from its parts: what [`policy`](Self::policy), [`state`](Self::state) and
    /// [`blocked_until`](Self::blocked_until) of another one returned.
    ///
    /// For stores that do not keep records in their own process. `policy` is the one that wrote the
    /// record, which need not be the one of the charge: a policy is stored as its text, and
    /// [`State`] says which numbers a state is stored as. From then on, the record decides as the
    /// other one would, whatever is asked.
    ///
    /// ```
    /// use tidegate_core::algorithm::fixed_window;
    /// use tidegate_core::engine::{Record, State};
    ///
    /// let policy = "login: fixed-window 5/1m anchored".parse()?;
    /// let state = fixed_window::State { ends: 1_790_000_060_000_000, count: 3 };
    /// let record = Record::restore(&policy, Some(State::FixedWindow(state)), None)?;
    /// assert_eq!(record.recovers_at(), 1_790_000_060_000_000);
    ///
    /// let state = fixed_window::State { ends: 1 << 60, count: 3 };
    /// let error = Record::restore(&policy, Some(State::FixedWindow(state)), None).unwrap_err();
    /// assert!(error.to_string().contains("ends at 1152921504606846976"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ForeignValue`] for parts that no record has: a state of another algorithm; a time
    /// after all that the policy leads to; a count or a debt of 0 or above [`MAX_EXACT`]; a window
    /// that does not end where the policy's windows end; a log that is empty, too long or not in
    /// order. The message names the value and the bound.
    ///
    /// A count above the policy's limit is none of these: the limit may have been lowered.
    pub fn restore(
        policy: &Policy,
        state: Option<State>,
        blocked_until: Option<u64>,
    ) -> Result<Self, Error> {
        let blocked_until = blocked_until.unwrap_or(0);
        check(policy, state.as_ref(), blocked_until).map_err(|problem| {
            Error::new(
                ErrorKind::ForeignValue,
                format!("no record of `{policy}` has these parts: {problem}"),
            )
        })?;
        Ok(Self { policy: policy.clone(), state, blocked_until })
    }
}

/// The latest time at which a record is written.
const LAST: u64 = Timestamp::MAX.as_micros();

fn check(policy: &Policy, state: Option<&State>, blocked_until: u64) -> Result<(), String> {
    at_most("it is blocked until", blocked_until, LAST + MAX_SPAN)?;
    match (policy.rule(), state) {
        (_, None) => Ok(()),
        (Rule::FixedWindow(rule), Some(State::FixedWindow(state))) => window(rule, *state),
        (Rule::SlidingLog(rule), Some(State::SlidingLog(state))) => log(rule, state),
        (Rule::SlidingCounter(rule), Some(State::SlidingCounter(state))) => counter(rule, *state),
        (Rule::TokenBucket(_), Some(State::TokenBucket(token_bucket::State { time, debt }))) => {
            at_most("the time of its debt is", *time, LAST)?;
            amount("its debt in units is", *debt)
        }
        (
            Rule::IntervalBucket(_),
            Some(State::IntervalBucket(interval_bucket::State { anchor, debt })),
        ) => {
            at_most("its period began at", *anchor, LAST)?;
            amount("its debt in tokens is", *debt)
        }
        (rule, Some(state)) => {
            Err(format!("the state is {}, and the policy's is {}", kind(state), kind_of(rule)))
        }
    }
}

fn window(rule: &FixedWindow, state: fixed_window::State) -> Result<(), String> {
    let fixed_window::State { ends, count } = state;
    at_most("its window ends at", ends, LAST + rule.window.get())?;
    if rule.start == Start::Aligned {
        multiple("its window ends at", ends, rule.window.get(), "the window")?;
    }
    amount("its count is", count)
}

fn counter(rule: &SlidingCounter, state: sliding_counter::State) -> Result<(), String> {
    let sliding_counter::State { ends, previous, current } = state;
    at_most("its window ends at", ends, LAST + rule.span())?;
    multiple("its window ends at", ends, rule.span(), "the window")?;
    at_most("the count of the window before is", previous, MAX_EXACT)?;
    if previous > 0 {
        return at_most("its count is", current, MAX_EXACT);
    }
    amount("its count is", current)
}

fn log(rule: &SlidingLog, state: &sliding_log::State) -> Result<(), String> {
    let max_records = policy::SlidingLog::MAX_RECORDS;
    let len = u64::try_from(state.len()).unwrap_or(u64::MAX);
    if len == 0 {
        return Err("its log is empty, which is stored as no state".to_owned());
    }
    at_most("the number of its records is", len, max_records)?;
    let (mut before, mut sum) = (None, 0_u64);
    for (place, (stamp, cost)) in state.records().enumerate() {
        let what = || format!("the time of record {place} is");
        at_most(what, stamp, LAST + rule.grain)?;
        if rule.grain > 0 {
            multiple(what, stamp, rule.grain, "the grain")?;
        }
        if let Some(before) = before.filter(|&before| stamp <= before) {
            return Err(format!(
                "the time of record {place} is {stamp}, not after {before}, the time of the one before"
            ));
        }
        amount(|| format!("the cost of record {place} is"), cost)?;
        sum = sum.saturating_add(cost);
        at_most(|| format!("the costs up to record {place} add up to"), sum, MAX_EXACT)?;
        before = Some(stamp);
    }
    Ok(())
}

/// The name of a value, which a log writes only if it is wrong.
trait Name {
    fn name(self) -> String;
}

impl Name for &str {
    fn name(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> Name for F {
    fn name(self) -> String {
        self()
    }
}

fn at_most(what: impl Name, value: u64, bound: u64) -> Result<(), String> {
    if value <= bound {
        return Ok(());
    }
    Err(format!("{} {value}, and at most {bound} is possible", what.name()))
}

/// What is counted: of nothing, there is no state.
fn amount(what: impl Name, value: u64) -> Result<(), String> {
    if (1..=MAX_EXACT).contains(&value) {
        return Ok(());
    }
    Err(format!("{} {value}, and 1 to {MAX_EXACT} is possible", what.name()))
}

fn multiple(what: impl Name, value: u64, of: u64, whose: &str) -> Result<(), String> {
    if value > 0 && value.is_multiple_of(of) {
        return Ok(());
    }
    Err(format!("{} {value}, which is not a multiple of {of} us, {whose}", what.name()))
}

fn kind(state: &State) -> &'static str {
    match state {
        State::FixedWindow(_) => "a fixed window",
        State::SlidingLog(_) => "a sliding log",
        State::SlidingCounter(_) => "a sliding counter",
        State::TokenBucket(_) => "a bucket with continuous refill",
        State::IntervalBucket(_) => "a bucket by intervals",
    }
}

fn kind_of(rule: &Rule) -> &'static str {
    match rule {
        Rule::FixedWindow(_) => "a fixed window",
        Rule::SlidingLog(_) => "a sliding log",
        Rule::SlidingCounter(_) => "a sliding counter",
        Rule::TokenBucket(_) => "a bucket with continuous refill",
        Rule::IntervalBucket(_) => "a bucket by intervals",
    }
}
