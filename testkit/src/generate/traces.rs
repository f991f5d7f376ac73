//! Random traces of calls with few policies and subjects. Many calls are made exactly at a time at
//! which the answer changes, or a microsecond before or after this time.
//!
//! A step defines its time and its costs relative to the last answer of the store. For example, the
//! time is a microsecond before `retry_after` is over, or the cost is `remaining` plus 1. So a
//! trace often makes a call exactly at a boundary. The type [`Trace`] converts steps into calls.

use std::fmt;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Call, CallId, Charge, Decision, Operation, Policy, Timestamp};

use super::Bytes;
use crate::show;

/// The movements that a clock is allowed to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockKind {
    /// The clock moves forwards only.
    Forwards,
    /// The clock moves forwards and back, by microseconds and by years.
    Jumping,
}

/// Policies, subjects, and a trace of calls with these policies and subjects.
///
/// The `Debug` output of a scenario is one line with `{:?}`, and fits on a screen with `{:#?}`.
#[derive(Clone)]
pub struct Scenario {
    /// The policies. Several policies can have the same name.
    pub policies: Vec<Policy>,
    /// Pairs of a tenant and a subject.
    pub subjects: Vec<(Bytes, Bytes)>,
    /// The time at which the trace starts, in microseconds since 1970.
    pub start: u64,
    /// The steps of the trace, in the order of execution.
    pub steps: Vec<Step>,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policies, subjects, start, steps } = self;
        let policies = policies.iter().map(|policy| format!("policy `{policy}`"));
        let subjects = subjects.iter().map(|(tenant, subject)| match tenant.is_empty() {
            true => format!("subject {subject:?}"),
            false => format!("subject {subject:?} of tenant {tenant:?}"),
        });
        let start = std::iter::once(format!("start {start}"));
        let steps = steps.iter().map(|step| self.show(step));
        show::list(f, "Scenario", policies.chain(subjects).chain(start).chain(steps))
    }
}

impl Scenario {
    /// Formats a step, with the indices of its policies and subjects in the lists of the scenario.
    fn show(&self, step: &Step) -> String {
        let Step { passes, does, charges, checks_last, has_list } = step;
        let charges = charges.iter().map(|(policy, subject, cost)| {
            let (policies, subjects) = (self.policies.len(), self.subjects.len());
            // `Index::index` panics if its argument is 0.
            let (policy, subject) = (policy.index(policies.max(1)), subject.index(subjects.max(1)));
            format!("(policy {policy}, subject {subject}, {cost:?})")
        });
        let charges = charges.collect::<Vec<_>>().join(" ");
        let checks_last = if *checks_last { ", the last is check-only" } else { "" };
        let has_list = if *has_list { ", with a list" } else { "" };
        format!("{passes:?}, {does:?} {charges}{checks_last}{has_list}")
    }
}

/// A step: a call, and the movement of the clock before the call.
#[derive(Clone)]
pub struct Step {
    /// The movement of the clock before the call.
    pub passes: Passes,
    /// The operation of the call.
    pub does: Does,
    /// The charges of the call: the index of a policy, the index of a subject, and a cost.
    pub charges: Vec<(prop::sample::Index, prop::sample::Index, Cost)>,
    /// Whether the last charge of the call is check-only.
    pub checks_last: bool,
    /// Whether the charges that can be alternatives are one list, except the first charge if there
    /// are more than two.
    pub has_list: bool,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passes, does, charges, checks_last, has_list } = self;
        write!(f, "Step({passes:?}, {does:?} {charges:?}, checks_last {checks_last}, ")?;
        write!(f, "has_list {has_list})")
    }
}

/// The movement of the clock before a call.
#[derive(Debug, Clone, Copy)]
pub enum Passes {
    /// The clock stands still.
    Nothing,
    /// The clock moves by this many microseconds, forwards or back.
    Micros(i64),
    /// The clock moves forwards by the `retry_after` of the last answer, plus this many
    /// microseconds.
    Retry(i64),
    /// The clock moves forwards by the longest `reset_after` in the last answer, plus this many
    /// microseconds.
    Reset(i64),
    /// The clock moves to a multiple of the first policy's window or period. The first number
    /// selects the multiple: 1 is the next multiple after the current time. The second number is
    /// added in microseconds.
    Boundary(u64, i64),
}

/// The cost of a charge.
#[derive(Debug, Clone, Copy)]
pub enum Cost {
    /// The cost is this number.
    Just(u64),
    /// The cost is the limit of the policy plus this number.
    Limit(i64),
    /// The cost is the remaining amount in the last answer plus this number.
    Remaining(i64),
}

/// The operation of a step.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "named as in Operation")]
pub enum Does {
    Acquire,
    Peek,
    Refund,
    /// A charge beyond the limit.
    Charge,
    /// An "acquire up to". Its minimum is the smallest cost of the call minus this number, but at
    /// least 1.
    AcquireUpTo(u64),
    /// An undo of the charges of an earlier acquire or reservation.
    Undo {
        /// The number of acquires and reservations between the earlier step and the undo.
        ago: usize,
        /// Whether the undo names the charges of the earlier step. If it is `false`, the undo names
        /// the charges of its own step.
        same: bool,
        /// The difference between the time that the undo names and the time of the earlier step, in
        /// microseconds.
        beside: i64,
    },
    Reset,
    /// A grant that ends after this many microseconds, or never.
    Grant(Option<u64>),
    Block(u64),
    BlockAtLeast(u64),
    Reserve(u64),
    /// A reservation whose `max_wait` is the wait in the last answer, plus this many microseconds.
    ReserveRetry(i64),
}

/// Returns a strategy for scenarios with these policies and at most `steps` steps. Each step has at
/// most `max_charges` charges.
pub fn scenario(
    policies: impl Strategy<Value = Vec<Policy>>,
    clock: ClockKind,
    steps: usize,
    max_charges: usize,
) -> impl Strategy<Value = Scenario> {
    let start = prop_oneof![
        4 => Just(1_790_000_000_000_123),
        2 => 1_000..1_100_u64,
        1 => 0..4_u64,
        1 => (0..40_u64).prop_map(|before| (1 << 52) - 1 - before),
        1 => 0..1_u64 << 52,
    ];
    let subjects = prop::sample::select(vec![
        vec![(Bytes::default(), Bytes::from("a"))],
        vec![(Bytes::default(), Bytes::from("a")), (Bytes::from("t"), Bytes::from("a"))],
        ["a", "b", "c"].map(|subject| (Bytes::default(), Bytes::from(subject))).to_vec(),
    ]);
    let steps = prop::collection::vec(step(clock, max_charges), 1..=steps);
    (policies, subjects, start, steps).prop_map(|(policies, subjects, start, steps)| Scenario {
        policies,
        subjects,
        start,
        steps,
    })
}

fn step(clock: ClockKind, max_charges: usize) -> impl Strategy<Value = Step> {
    let charge = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), cost());
    let charges = prop::collection::vec(charge, 1..=max_charges);
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    (passes(clock), does(), charges, flags).prop_map(
        |(passes, does, charges, (checks_last, has_list))| Step {
            passes,
            does,
            charges,
            checks_last,
            has_list,
        },
    )
}

fn passes(clock: ClockKind) -> BoxedStrategy<Passes> {
    const YEAR: i64 = 365 * 86_400_000_000;
    let forwards = prop_oneof![
        6 => Just(Passes::Nothing),
        5 => (1..15_i64).prop_map(Passes::Micros),
        5 => (-1..=1_i64).prop_map(Passes::Retry),
        3 => (-1..=1_i64).prop_map(Passes::Reset),
        3 => (1..4_u64, -1..=1_i64).prop_map(|(n, beside)| Passes::Boundary(n, beside)),
        1 => (1..30 * YEAR).prop_map(Passes::Micros),
    ];
    match clock {
        ClockKind::Forwards => forwards.boxed(),
        ClockKind::Jumping => prop_oneof![
            4 => forwards,
            2 => (-15..0_i64).prop_map(Passes::Micros),
            1 => (-40 * YEAR..40 * YEAR).prop_map(Passes::Micros),
        ]
        .boxed(),
    }
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        8 => (1..4_u64).prop_map(Cost::Just),
        1 => Just(Cost::Just(0)),
        3 => (-2..=1_i64).prop_map(Cost::Limit),
        4 => (-1..=1_i64).prop_map(Cost::Remaining),
        1 => any::<u64>().prop_map(Cost::Just),
    ]
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        24 => Just(Does::Acquire),
        3 => Just(Does::Peek),
        4 => Just(Does::Refund),
        3 => Just(Does::Charge),
        4 => (0..4_u64).prop_map(Does::AcquireUpTo),
        5 => undo(),
        1 => Just(Does::Reset),
        4 => grant(),
        1 => block_micros().prop_map(Does::Block),
        1 => block_micros().prop_map(Does::BlockAtLeast),
        5 => (0..30_u64).prop_map(Does::Reserve),
        5 => (-1..=1_i64).prop_map(Does::ReserveRetry),
    ]
}

fn block_micros() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..20_u64, Just(60 * 86_400_000_000)]
}

fn grant() -> impl Strategy<Value = Does> {
    const DAY: u64 = 86_400_000_000;
    let span = prop_oneof![4 => 0..15_u64, 2 => 0..40 * DAY, 1 => 0..1_u64 << 52];
    prop::option::weighted(0.7, span).prop_map(Does::Grant)
}

fn undo() -> impl Strategy<Value = Does> {
    let ago = prop_oneof![2 => Just(0), 1 => 1..6_usize];
    let same = prop::bool::weighted(0.7);
    let beside = prop_oneof![4 => Just(0), 1 => -2..=2_i64, 1 => -30..30_i64];
    (ago, same, beside).prop_map(|(ago, same, beside)| Does::Undo { ago, same, beside })
}

/// A scenario that is being executed: the time of the clock, and the last answer of the store.
#[derive(Debug)]
pub struct Trace<'s> {
    scenario: &'s Scenario,
    clock: ClockKind,
    now: u64,
    last: Option<Decision>,
    /// The time and the charges of each earlier acquire and reservation.
    takes: Vec<(u64, Vec<Charge<'s>>)>,
    /// The number of grants so far. Each grant has its own id.
    grants: usize,
}

/// Makes one list of the charges that can be alternatives, except the first charge if there are
/// more than two.
pub(super) fn join(charges: &mut [Charge<'_>]) {
    let can_join = |charge: &Charge<'_>| {
        let same = charges.iter().filter(|other| other.shares_state_with(charge));
        !charge.is_check_only
            && !charge.policy.is_shadow()
            && charge.policy.block().is_none()
            && same.count() == 1
    };
    let can_join: Vec<bool> = charges.iter().map(can_join).collect();
    let plain = usize::from(charges.len() > 2);
    for (charge, _) in charges.iter_mut().zip(can_join).skip(plain).filter(|(_, can)| *can) {
        *charge = charge.in_list(1);
    }
}

/// The ids of grants: each byte is an id.
static IDS: [u8; 256] = {
    let (mut ids, mut byte) = ([0; 256], 0);
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the number is below 256")]
        let id = byte as u8;
        ids[byte] = id;
        byte += 1;
    }
    ids
};

impl<'s> Trace<'s> {
    /// Creates a trace of the calls of `scenario`, before its first call.
    #[must_use]
    pub fn new(scenario: &'s Scenario, clock: ClockKind) -> Self {
        Self { scenario, clock, now: scenario.start, last: None, takes: vec![], grants: 0 }
    }

    /// Returns the current time of the trace.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    /// Records the decision on the last call.
    pub fn answered(&mut self, decision: &Decision) {
        self.last = Some(decision.clone());
    }

    /// Moves the clock as a step defines, and returns the new time.
    pub fn pass(&mut self, step: &Step) -> Timestamp {
        let after = |wait: Option<Duration>, beside: i64| {
            let wait = wait.map_or(0, |wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
            self.now.saturating_add(wait).saturating_add_signed(beside)
        };
        let last = self.last.as_ref();
        let then = match step.passes {
            Passes::Nothing => self.now,
            Passes::Micros(micros) => self.now.saturating_add_signed(micros),
            Passes::Retry(beside) => after(last.and_then(Decision::retry_after), beside),
            Passes::Reset(beside) => {
                let verdicts = last.map_or(&[][..], Decision::verdicts);
                after(verdicts.iter().map(|v| v.reset_after()).max(), beside)
            }
            Passes::Boundary(n, beside) => {
                let window = self.window();
                let boundary = (self.now / window).saturating_add(n).saturating_mul(window);
                boundary.saturating_add_signed(beside)
            }
        };
        let then = match self.clock {
            ClockKind::Forwards => then.max(self.now),
            ClockKind::Jumping => then,
        };
        let then = Timestamp::from_micros(then);
        self.now = then.as_micros();
        then
    }

    /// Returns the operation and the charges of a step.
    pub fn ask(&mut self, step: &Step) -> (Operation, Vec<Charge<'s>>) {
        let mut charges: Vec<_> = step.charges.iter().map(|charge| self.charge(charge)).collect();
        if let Some(last) = charges.last_mut().filter(|_| step.checks_last) {
            *last = last.check_only();
        }
        let operation = self.operation(step, &mut charges);
        if matches!(operation, Operation::Acquire | Operation::Reserve { .. }) {
            self.takes.push((self.now, charges.clone()));
        }
        if step.has_list && operation.can_be_refused() && operation.min_amount().is_none() {
            join(&mut charges);
        }
        (operation, charges)
    }

    /// Returns the call with an operation and charges that [`ask`](Self::ask) has returned. A grant
    /// gets a new id.
    pub fn call<'c>(&mut self, operation: Operation, charges: &'c [Charge<'c>]) -> Call<'c> {
        let call = Call::new(operation, charges);
        if !matches!(operation, Operation::Grant { .. }) {
            return call;
        }
        let place = self.grants % IDS.len();
        self.grants += 1;
        call.with_id(CallId::new(&IDS[place..=place], Duration::from_secs(1)))
    }

    fn operation(&self, step: &Step, charges: &mut Vec<Charge<'s>>) -> Operation {
        let all_reservable = charges.iter().all(|c| c.policy.rule().can_reserve());
        let micros = Duration::from_micros;
        match step.does {
            Does::Acquire => Operation::Acquire,
            Does::Peek => Operation::Peek,
            Does::Refund => Operation::Refund,
            Does::Charge => Operation::Charge,
            Does::AcquireUpTo(below) => {
                let taken = charges.iter().filter(|charge| !charge.is_check_only);
                let cost = taken.map(|charge| charge.cost).min().unwrap_or(1);
                Operation::AcquireUpTo { min: cost.saturating_sub(below).max(1) }
            }
            Does::Undo { ago, same, beside } => {
                let take = self.takes.iter().rev().nth(ago);
                if let Some((_, taken)) = take.filter(|_| same) {
                    charges.clone_from(taken);
                }
                let at = take.map_or(self.now, |(at, _)| *at).saturating_add_signed(beside);
                Operation::Undo { at: Timestamp::from_micros(at) }
            }
            Does::Reset => Operation::Reset,
            Does::Grant(_) if !charges.iter().all(|charge| charge.policy.is_quota()) => {
                Operation::Acquire
            }
            Does::Grant(span) => Operation::Grant {
                ends_at: span.map(|span| self.now().saturating_add(micros(span))),
            },
            Does::Block(span) => Operation::Block { span: micros(span) },
            Does::BlockAtLeast(span) => Operation::BlockAtLeast { span: micros(span) },
            Does::Reserve(_) | Does::ReserveRetry(_) if !all_reservable => Operation::Acquire,
            Does::Reserve(longest) => Operation::Reserve { max_wait: micros(longest) },
            Does::ReserveRetry(beside) => {
                let wait = self.last.as_ref().and_then(Decision::retry_after);
                let wait = wait.map_or(0, |wait| u64::try_from(wait.as_micros()).unwrap_or(0));
                Operation::Reserve { max_wait: micros(wait.saturating_add_signed(beside)) }
            }
        }
    }

    fn charge(&self, charge: &(prop::sample::Index, prop::sample::Index, Cost)) -> Charge<'s> {
        let (policy, subject, cost) = charge;
        let policy = policy.get(&self.scenario.policies);
        let (tenant, subject) = subject.get(&self.scenario.subjects);
        let cost = match *cost {
            Cost::Just(cost) => cost,
            Cost::Limit(beside) => policy.limit().saturating_add_signed(beside),
            Cost::Remaining(beside) => {
                let verdict = self.last.as_ref().and_then(|last| last.verdicts().first());
                verdict.map_or(1, |verdict| verdict.remaining()).saturating_add_signed(beside)
            }
        };
        Charge::new(policy, subject).tenant(tenant).cost(cost)
    }

    fn window(&self) -> u64 {
        use tidegate_core::Algorithm::{
            FixedWindow, Quota, SlidingCounter, SlidingLog, TokenBucket,
        };
        let first = self.scenario.policies.first().map(Policy::algorithm);
        let window = match first {
            Some(FixedWindow(spec)) => spec.window(),
            Some(SlidingLog(spec)) => spec.granularity().unwrap_or(spec.window()),
            Some(SlidingCounter(spec)) => spec.window(),
            Some(TokenBucket(spec)) => spec.period(),
            // Windows begin at full hours, and at quarters of an hour in a few zones.
            Some(Quota(_)) => Duration::from_secs(6 * 3_600 + 15 * 60),
            _ => Duration::from_secs(1),
        };
        u64::try_from(window.as_micros()).unwrap_or(1).max(1)
    }
}
