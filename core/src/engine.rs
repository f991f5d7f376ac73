//! How a store decides: records under keys, and one call carried out on them.
//!
//! A backend that keeps its states in its own process needs nothing else: it implements [`Records`]
//! over whatever it keeps them in, holds off other callers meanwhile, and calls [`decide`].
//! Everything that can fail is checked before the first write. A backend that keeps them elsewhere
//! stores a record's parts, and makes it anew from these: [`Record::restore`].

pub(crate) mod fast;
mod restore;
mod undo;

use std::borrow::Cow;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{
    Level, fixed_window, interval_bucket, sliding_counter, sliding_log, token_bucket,
};
use crate::policy::Rule;
use crate::time::{MAX_SPAN, Wait, micros_of, micros_of_ceil};
use crate::{Call, Charge, Decision, Error, Operation, Outcome, Policy, Timestamp, Verdict};

/// What one of the algorithms keeps: a few numbers, each below 2^53, so that a signed 64-bit column
/// holds it. Times are microseconds since 1970.
///
/// | state | numbers |
/// |---|---|
/// | [fixed window](fixed_window::State) | `ends`: when the window ends; `count`: what was taken in it |
/// | [sliding log](sliding_log::State) | [`records`](sliding_log::State::records): pairs of a time and a cost, oldest first |
/// | [sliding counter](sliding_counter::State) | `ends`: when the current window ends; `previous` and `current`: what was taken in the window before and in this one |
/// | [token bucket, GCRA](token_bucket::State) | `time`: when the debt was as it stands here; `debt`: in units of the policy that wrote it, see [`token_bucket`] |
/// | [bucket by intervals](interval_bucket::State) | `anchor`: when the current period began; `debt`: in tokens |
///
/// A debt, a count and a cost mean nothing without the policy that wrote them: a store keeps its text
/// too. To read a state back: [`Record::restore`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Of a fixed window.
    FixedWindow(fixed_window::State),
    /// Of a sliding log. Boxed, as it alone would make every record larger.
    SlidingLog(Box<sliding_log::State>),
    /// Of a sliding counter.
    SlidingCounter(sliding_counter::State),
    /// Of a token bucket or GCRA.
    TokenBucket(token_bucket::State),
    /// Of a bucket that refills by intervals.
    IntervalBucket(interval_bucket::State),
}

/// What a store keeps under the key of a policy and a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The policy that wrote it: what the state's numbers mean.
    policy: Policy,
    state: Option<State>,
    /// Microseconds since 1970; 0 for not blocked.
    blocked_until: u64,
}

impl Record {
    /// A record in which nothing is taken.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self { policy: policy.clone(), state: None, blocked_until: 0 }
    }

    /// The policy that wrote the record.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The state, if anything is taken.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Until when the subject is shut out, if it was: microseconds since 1970. This may lie beyond
    /// [`Timestamp::MAX`], and before now.
    #[must_use]
    pub fn blocked_until(&self) -> Option<u64> {
        (self.blocked_until > 0).then_some(self.blocked_until)
    }

    /// From when on the record is indistinguishable from none, so that a store may drop it, in
    /// microseconds since 1970. This may lie beyond [`Timestamp::MAX`], and then it is never.
    #[must_use]
    pub fn recovers_at(&self) -> u64 {
        let state = self.state.as_ref().map_or(0, |state| self.policy.rule().recovers_at(state));
        state.max(self.blocked_until)
    }

    /// Bytes that the record keeps outside of itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.state {
            Some(State::SlidingLog(log)) => size_of::<sliding_log::State>() + log.heap_bytes(),
            _ => 0,
        }
    }

    /// Bytes that one more charge may add to [`heap_bytes`](Self::heap_bytes), at most.
    #[must_use]
    pub fn growth(record: Option<&Self>, policy: &Policy) -> usize {
        match record.map(Self::state) {
            Some(Some(State::SlidingLog(log))) => log.growth(),
            _ if policy.rule().max_records() > 0 => {
                size_of::<sliding_log::State>() + sliding_log::State::default().growth()
            }
            _ => 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.state.is_none() && self.blocked_until == 0
    }

    /// The state as `policy` sees it at `now`. `None` if there is none, if it is of another shape, or
    /// if it has recovered under the policy that wrote it: then a store may have dropped it, and what
    /// is decided must not depend on whether it did.
    fn state_under(&self, policy: &Policy, now: u64) -> Option<Cow<'_, State>> {
        let state = self.state.as_ref()?;
        if self.policy.is_same_object(policy) {
            return Some(Cow::Borrowed(state));
        }
        let (older, newer) = (self.policy.rule(), policy.rule());
        match (state, older, newer) {
            _ if older.shape() != newer.shape() || older.recovers_at(state) <= now => None,
            (State::TokenBucket(state), Rule::TokenBucket(older), Rule::TokenBucket(newer)) => {
                Some(Cow::Owned(State::TokenBucket(newer.adopt(*state, older))))
            }
            _ => Some(Cow::Borrowed(state)),
        }
    }

    /// When the state ends if nothing is written until then: under the policy that wrote it, which may
    /// be sooner than `policy` says.
    fn ends_at(&self, policy: &Policy) -> u64 {
        match &self.state {
            Some(state) if !self.policy.is_same_object(policy) => {
                self.policy.rule().recovers_at(state)
            }
            _ => u64::MAX,
        }
    }

    /// Makes the record one of `policy`: what was used stays used, or starts fresh.
    fn adopt(&mut self, policy: &Policy, now: u64) {
        if !self.policy.is_same_object(policy) {
            self.state = self.state_under(policy, now).map(Cow::into_owned);
            self.policy = policy.clone();
        }
    }
}

impl Record {
    fn take(&mut self, charge: &Charge<'_>, cost: u64, now: u64) {
        self.adopt(charge.policy, now);
        let state = self.state.take();
        self.state = charge.policy.rule().take(state, cost, now, charge);
        if self.blocked_until <= now {
            self.blocked_until = 0;
        }
    }

    fn give_back(&mut self, charge: &Charge<'_>, now: u64) {
        self.adopt(charge.policy, now);
        let state = self.state.take();
        self.state = charge.policy.rule().give_back(state, charge.cost, now);
        if self.blocked_until <= now {
            self.blocked_until = 0;
        }
    }
}

/// The functions of each algorithm, for whichever it is. A state of another algorithm is none.
impl Rule {
    fn wait(&self, state: Option<&State>, cost: u64, now: u64) -> Wait {
        match self {
            Self::FixedWindow(rule) => rule.wait(of!(FixedWindow, state), cost, now),
            Self::SlidingLog(rule) => rule.wait(log_of(state), cost, now),
            Self::SlidingCounter(rule) => rule.wait(of!(SlidingCounter, state), cost, now),
            Self::TokenBucket(rule) => rule.wait(of!(TokenBucket, state), cost, now),
            Self::IntervalBucket(rule) => rule.wait(of!(IntervalBucket, state), cost, now),
        }
    }

    fn level(&self, state: Option<&State>, now: u64) -> Level {
        match self {
            Self::FixedWindow(rule) => rule.level(of!(FixedWindow, state), now),
            Self::SlidingLog(rule) => rule.level(log_of(state), now),
            Self::SlidingCounter(rule) => rule.level(of!(SlidingCounter, state), now),
            Self::TokenBucket(rule) => rule.level(of!(TokenBucket, state), now),
            Self::IntervalBucket(rule) => rule.level(of!(IntervalBucket, state), now),
        }
    }

    fn recovers_at(&self, state: &State) -> u64 {
        match (self, state) {
            (Self::FixedWindow(rule), State::FixedWindow(state)) => rule.recovers_at(*state),
            (Self::SlidingLog(rule), State::SlidingLog(state)) => rule.recovers_at(state),
            (Self::SlidingCounter(rule), State::SlidingCounter(state)) => rule.recovers_at(*state),
            (Self::TokenBucket(rule), State::TokenBucket(state)) => rule.recovers_at(*state),
            (Self::IntervalBucket(rule), State::IntervalBucket(state)) => rule.recovers_at(*state),
            _ => 0,
        }
    }

    /// Whether a debt that includes `cost` can still be told exactly.
    fn can_book(&self, state: Option<&State>, cost: u64, now: u64) -> bool {
        match self {
            Self::TokenBucket(rule) => rule.take(of!(TokenBucket, state), cost, now).is_some(),
            Self::IntervalBucket(rule) => {
                rule.take(of!(IntervalBucket, state), cost, now).is_some()
            }
            _ => false,
        }
    }

    fn take(
        &self,
        state: Option<State>,
        cost: u64,
        now: u64,
        charge: &Charge<'_>,
    ) -> Option<State> {
        let old = state.as_ref();
        Some(match self {
            Self::FixedWindow(rule) => {
                let phase =
                    if rule.start == fixed_window::Start::Phased { charge.phase() } else { 0 };
                State::FixedWindow(rule.take(of!(FixedWindow, old), cost, now, phase))
            }
            Self::SlidingLog(rule) => {
                let mut log = match state {
                    Some(State::SlidingLog(log)) => log,
                    _ => Box::default(),
                };
                rule.take(&mut log, cost, now);
                State::SlidingLog(log)
            }
            Self::SlidingCounter(rule) => {
                State::SlidingCounter(rule.take(of!(SlidingCounter, old), cost, now))
            }
            // What was evaluated as admitted can be taken; else the state would stay as it was.
            Self::TokenBucket(rule) => match rule.take(of!(TokenBucket, old), cost, now) {
                Some(state) => State::TokenBucket(state),
                None => return state,
            },
            Self::IntervalBucket(rule) => match rule.take(of!(IntervalBucket, old), cost, now) {
                Some(state) => State::IntervalBucket(state),
                None => return state,
            },
        })
    }

    fn give_back(&self, state: Option<State>, cost: u64, now: u64) -> Option<State> {
        let old = state.as_ref();
        match self {
            Self::FixedWindow(rule) => {
                rule.give_back(of!(FixedWindow, old), cost, now).map(State::FixedWindow)
            }
            Self::SlidingLog(rule) => {
                let Some(State::SlidingLog(mut log)) = state else {
                    return None;
                };
                rule.give_back(&mut log, cost, now);
                (!log.is_empty()).then_some(State::SlidingLog(log))
            }
            Self::SlidingCounter(rule) => {
                rule.give_back(of!(SlidingCounter, old), cost, now).map(State::SlidingCounter)
            }
            Self::TokenBucket(rule) => {
                rule.give_back(of!(TokenBucket, old), cost, now).map(State::TokenBucket)
            }
            Self::IntervalBucket(rule) => {
                rule.give_back(of!(IntervalBucket, old), cost, now).map(State::IntervalBucket)
            }
        }
    }
}

/// The state, if it is of this algorithm.
macro_rules! of {
    ($algorithm:ident, $state:expr) => {
        match $state {
            Some(State::$algorithm(state)) => Some(*state),
            _ => None,
        }
    };
}
use of;

fn log_of(state: Option<&State>) -> Option<&sliding_log::State> {
    match state {
        Some(State::SlidingLog(log)) => Some(log),
        _ => None,
    }
}

/// The records that a call is about, by the places of its charges.
///
/// The record of a charge is the one of its policy's [`state_name`](Policy::state_name), its tenant and
/// its [`state_subject`](Charge::state_subject). An implementation holds off all other callers from
/// `get` to the last `update`.
pub trait Records {
    /// The record of the charge at `place`.
    fn get(&mut self, place: usize) -> Option<&Record>;

    /// Makes sure that the next `update` of each of these places cannot fail.
    ///
    /// # Errors
    ///
    /// If there is no room. Nothing may have been written then.
    fn make_room(&mut self, places: &[usize]) -> Result<(), Error>;

    /// Changes the record of the charge at `place`, first making an empty one if there is none.
    fn update(&mut self, place: usize, change: impl FnOnce(&mut Record));

    /// Drops the record of the charge at `place`, if there is one.
    fn remove(&mut self, place: usize);
}

/// Carries out a call at a time.
///
/// # Errors
///
/// If the call is wrong ([`Call::check`]), or there is no room for its records. Nothing was written
/// then.
pub fn decide(
    call: &Call<'_>,
    now: Timestamp,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    call.check()?;
    let now = now.as_micros();
    match call.operation {
        Operation::Acquire => acquire(call, now, Wait::ZERO, records),
        Operation::Reserve { max_wait } => acquire(call, now, longest(max_wait), records),
        Operation::Peek => {
            let evaluated = evaluate_all(call, now, Wait::ZERO, records);
            Ok(report(call, now, &evaluated, records))
        }
        Operation::Refund => refund(call, now, records),
        Operation::Undo { at } => Ok(undo::undo(call, at.as_micros(), now, records)),
        Operation::Reset => {
            (0..call.charges.len()).for_each(|place| records.remove(place));
            Ok(report_after(call, now, records))
        }
        Operation::Block { span } => block(call, now, span, records),
    }
}

type PerCharge<T> = SmallVec<[T; 4]>;

/// What a policy thinks of a charge before anything is written.
struct Weighed {
    /// The place of the first charge to the same key.
    first: usize,
    /// The costs of all charges to that key.
    cost: u64,
    /// How long until that cost is admitted, were the subject not blocked.
    wait: Wait,
    outcome: Outcome,
}

impl Weighed {
    fn admits(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// Whether something is written, if the whole call is `allowed` or not.
    fn writes(&self, charge: &Charge<'_>, allowed: bool) -> bool {
        match self.outcome {
            _ if self.cost == 0 => false,
            Outcome::Allowed => allowed,
            Outcome::Denied => charge.policy.block_micros() > 0 && self.wait != Wait::NEVER,
            Outcome::Blocked => false,
        }
    }

    /// Takes what was admitted, or writes the penalty for what was not.
    fn write(&self, charge: &Charge<'_>, record: &mut Record, now: u64) {
        match self.outcome {
            Outcome::Allowed => record.take(charge, self.cost, now),
            _ => record.blocked_until = now.saturating_add(charge.policy.block_micros()),
        }
    }
}

/// Takes all charges, if each is admitted within `max_wait`; else only writes penalties.
fn acquire(
    call: &Call<'_>,
    now: u64,
    max_wait: Wait,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    if let (1, Some(charge)) = (call.charges.len(), call.charges.get(0)) {
        return acquire_one(&charge, now, max_wait, records);
    }
    let evaluated = evaluate_all(call, now, max_wait, records);
    let charges = || call.charges.iter().zip(&evaluated).enumerate();
    let in_force = || charges().filter(|(_, (charge, _))| !charge.policy.is_shadow());
    let allowed = in_force().all(|(_, (_, w))| w.admits());

    // Each key is written once, at the place of its first charge.
    let written: PerCharge<usize> = charges()
        .filter(|(place, (charge, w))| w.first == *place && w.writes(charge, allowed))
        .map(|(place, _)| place)
        .collect();
    if !written.is_empty() {
        records.make_room(&written)?;
        for (place, (charge, w)) in charges().filter(|(place, _)| written.contains(place)) {
            records.update(place, |record| w.write(&charge, record, now));
        }
    }
    let decision = report(call, now, &evaluated, records);
    let wait = in_force().map(|(_, (_, w))| w.wait).max().unwrap_or(Wait::ZERO);
    Ok(if allowed { booked(decision, wait) } else { decision })
}

/// The same for a single charge, which is what most calls are.
fn acquire_one(
    charge: &Charge<'_>,
    now: u64,
    max_wait: Wait,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let w = evaluate(charge, 0, charge.cost, records.get(0), now, max_wait);
    let allowed = w.admits() || charge.policy.is_shadow();
    if w.writes(charge, allowed) {
        records.make_room(&[0])?;
        records.update(0, |record| w.write(charge, record, now));
    }
    let decision = Decision::one(verdict(charge, &w, records.get(0), now));
    Ok(if w.admits() && !charge.policy.is_shadow() { booked(decision, w.wait) } else { decision })
}

fn booked(decision: Decision, wait: Wait) -> Decision {
    decision.with_wait(wait.as_duration().unwrap_or_default())
}

fn refund(call: &Call<'_>, now: u64, records: &mut impl Records) -> Result<Decision, Error> {
    for (place, charge) in call.charges.iter().enumerate() {
        if charge.cost == 0 || records.get(place).is_none() {
            continue;
        }
        change(place, records, |record| record.give_back(&charge, now));
    }
    Ok(report_after(call, now, records))
}

fn block(
    call: &Call<'_>,
    now: u64,
    span: Duration,
    records: &mut impl Records,
) -> Result<Decision, Error> {
    let places: PerCharge<usize> = (0..call.charges.len()).collect();
    let span = micros_of_ceil(span).min(MAX_SPAN);
    if span > 0 {
        records.make_room(&places)?;
    }
    for place in places {
        if span == 0 && records.get(place).is_none() {
            continue;
        }
        let until = if span > 0 { now.saturating_add(span) } else { 0 };
        change(place, records, |record| record.blocked_until = until);
    }
    Ok(report_after(call, now, records))
}

/// Changes a record, and drops it if that leaves nothing in it.
fn change(place: usize, records: &mut impl Records, change: impl FnOnce(&mut Record)) {
    let mut is_empty = false;
    records.update(place, |record| {
        change(record);
        is_empty = record.is_empty();
    });
    if is_empty {
        records.remove(place);
    }
}

fn evaluate_all(
    call: &Call<'_>,
    now: u64,
    max_wait: Wait,
    records: &mut impl Records,
) -> PerCharge<Weighed> {
    let charges = call.charges;
    let evaluate = |(place, charge): (usize, Charge<'_>)| {
        let (mut first, mut cost) = (place, charge.cost);
        if charges.len() > 1 {
            first =
                charges.iter().position(|other| other.shares_state_with(&charge)).unwrap_or(place);
            cost = charges.total_cost_for(&charge);
        }
        evaluate(&charge, first, cost, records.get(place), now, max_wait)
    };
    charges.iter().enumerate().map(evaluate).collect()
}

fn evaluate(
    charge: &Charge<'_>,
    first: usize,
    cost: u64,
    record: Option<&Record>,
    now: u64,
    max_wait: Wait,
) -> Weighed {
    let state = record.and_then(|record| record.state_under(charge.policy, now));
    let rule = charge.policy.rule();
    let wait = rule.wait(state.as_deref(), cost, now);
    let outcome = if record.is_some_and(|record| now < record.blocked_until) {
        Outcome::Blocked
    } else if wait.is_zero() || wait <= max_wait && rule.can_book(state.as_deref(), cost, now) {
        Outcome::Allowed
    } else {
        Outcome::Denied
    };
    Weighed { first, cost, wait, outcome }
}

/// The verdicts on charges that were evaluated, with the levels as they are now.
fn report(
    call: &Call<'_>,
    now: u64,
    evaluated: &[Weighed],
    records: &mut impl Records,
) -> Decision {
    let charges = call.charges.iter().zip(evaluated).enumerate();
    Decision::new(charges.map(|(place, (charge, w))| verdict(&charge, w, records.get(place), now)))
}

fn verdict(charge: &Charge<'_>, w: &Weighed, record: Option<&Record>, now: u64) -> Verdict {
    let state = record.and_then(|record| record.state_under(charge.policy, now));
    let Level { remaining, recovers_at } = charge.policy.rule().level(state.as_deref(), now);
    let ends_at = record.map_or(u64::MAX, |record| record.ends_at(charge.policy));
    let blocked_until = record.map_or(0, |record| record.blocked_until);
    let blocked = Wait::until(blocked_until, now);
    let remaining = if blocked.is_zero() { remaining } else { 0 };
    let wait = if w.wait == Wait::NEVER { w.wait } else { w.wait.min(Wait::until(ends_at, now)) };
    let retry = if w.admits() { Wait::ZERO } else { wait.max(blocked) };
    let reset = recovers_at.min(ends_at).max(blocked_until).saturating_sub(now);
    Verdict::new(w.outcome, charge.policy.limit(), remaining, retry, reset)
        .in_block(blocked_until.saturating_sub(now))
        .in_shadow(charge.policy.is_shadow())
}

/// What a peek at no cost says after an operation.
fn report_after(call: &Call<'_>, now: u64, records: &mut impl Records) -> Decision {
    Decision::new(call.charges.iter().enumerate().map(|(place, charge)| {
        let record = records.get(place);
        let w = evaluate(&charge, place, 0, record, now, Wait::ZERO);
        verdict(&charge, &w, record, now)
    }))
}

fn longest(max_wait: Duration) -> Wait {
    Wait::until(micros_of(max_wait).min(MAX_SPAN), 0)
}
