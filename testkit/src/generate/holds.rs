//! Random traces of holds. The holds are made, extended and settled under few ids, and other calls
//! are made in between.

use std::fmt;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Charge, Decision, Error, Operation, Policy, Timestamp};

use super::traces::join;
use crate::show;

/// Policies, and a trace of calls that charge these policies for one subject of one tenant.
///
/// The `Debug` output of a scenario is one line with `{:?}`, and fits on a screen with `{:#?}`.
#[derive(Clone)]
pub struct HoldScenario {
    /// The policies. All policies have different names.
    pub policies: Vec<Policy>,
    /// The time at which the trace starts, in microseconds since 1970.
    pub(crate) start: u64,
    pub(crate) steps: Vec<HoldStep>,
}

impl fmt::Debug for HoldScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policies, start, steps } = self;
        let policies = policies.iter().map(|policy| format!("policy `{policy}`"));
        let start = std::iter::once(format!("start {start}"));
        let steps = steps.iter().map(|step| format!("{step:?}"));
        show::list(f, "HoldScenario", policies.chain(start).chain(steps))
    }
}

#[derive(Clone)]
pub(crate) struct HoldStep {
    /// The time between the previous call and this call, in microseconds.
    pub(crate) passes: u64,
    pub(crate) does: HoldDoes,
    /// The id of the hold, from 0 to 5. If the operation does not name a hold, the id is ignored.
    pub(crate) id: u8,
    /// The time to live of the id, in microseconds.
    pub(crate) ttl: u64,
    /// The cost of each policy, in the order of the policies. `None` means that the call does not
    /// charge the policy.
    pub(crate) costs: Vec<Option<u64>>,
    /// Whether the last charge of the call is check-only.
    pub(crate) checks_last: bool,
    /// Whether the charges that can be alternatives are one list, except the first charge if there
    /// are more than two.
    pub(crate) has_list: bool,
    /// Whether a call that settles or extends a hold has the same charges as the hold, at the costs
    /// `costs`. If it is `false`, the call charges each policy that has a cost in `costs`.
    pub(crate) fits: bool,
}

impl fmt::Debug for HoldStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passes, does, id, ttl, costs, checks_last, has_list, fits } = self;
        write!(
            f,
            "HoldStep(passes {passes}, {does:?} {costs:?}, id {id}, ttl {ttl}, \
             checks_last {checks_last}, has_list {has_list}, fits {fits})"
        )
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum HoldDoes {
    Hold,
    /// A "hold up to". Its minimum is this number, but at most the smallest cost of the call.
    HoldUpTo(u64),
    HoldInTurn,
    Leave,
    Settle,
    SettleSoFar,
    Extend,
    Acquire,
    Peek,
    Charge,
    Refund,
    Reset,
    Block(u64),
}

/// Returns a strategy for scenarios with these policies and at most `steps` steps.
pub fn hold_scenario(
    policies: impl Strategy<Value = Vec<Policy>>,
    steps: usize,
) -> impl Strategy<Value = HoldScenario> {
    let start = prop_oneof![
        4 => Just(1_790_000_000_000_123),
        1 => 1_000..1_100_u64,
        1 => (0..200_u64).prop_map(|before| (1 << 52) - 1 - before),
    ];
    let steps = prop::collection::vec(step(), 1..=steps);
    (policies, start, steps).prop_map(|(policies, start, steps)| HoldScenario {
        policies,
        start,
        steps,
    })
}

/// Returns a strategy for scenarios of slots. In these scenarios, several holders at a time wait
/// for slots, and take, renew, lose and revive them.
///
/// The first policy should have few slots and a short lease.
pub fn slots_scenario(
    policies: impl Strategy<Value = Vec<Policy>>,
    steps: usize,
) -> impl Strategy<Value = HoldScenario> {
    let passes = prop_oneof![3 => Just(0), 6 => 1..8_u64, 2 => 8..30_u64];
    let does = prop_oneof![
        5 => Just(HoldDoes::Hold),
        12 => Just(HoldDoes::HoldInTurn),
        1 => Just(HoldDoes::Leave),
        6 => Just(HoldDoes::Extend),
        6 => Just(HoldDoes::Settle),
        1 => Just(HoldDoes::Peek),
        1 => Just(HoldDoes::Acquire),
        1 => Just(HoldDoes::Reset),
    ];
    let cost = prop_oneof![9 => 1..3_u64, 1 => 0..6_u64].prop_map(Some);
    let step = (passes, does, 1..6_u8, 5..30_u64, prop::collection::vec(cost, 3));
    let step = step.prop_map(|(passes, does, id, ttl, costs)| HoldStep {
        passes,
        does,
        id,
        ttl,
        costs,
        checks_last: false,
        has_list: false,
        fits: true,
    });
    (policies, prop::collection::vec(step, 1..=steps)).prop_map(|(policies, steps)| HoldScenario {
        policies,
        start: 1_790_000_000_000_123,
        steps,
    })
}

fn step() -> impl Strategy<Value = HoldStep> {
    let passes = prop_oneof![4 => Just(0), 6 => 1..8_u64, 2 => 8..40_u64, 1 => 1..1_000_000_u64];
    let does = prop_oneof![
        8 => Just(HoldDoes::Hold),
        2 => (1..4_u64).prop_map(HoldDoes::HoldUpTo),
        8 => Just(HoldDoes::Settle),
        5 => Just(HoldDoes::SettleSoFar),
        3 => Just(HoldDoes::Extend),
        5 => Just(HoldDoes::Acquire),
        3 => Just(HoldDoes::Peek),
        2 => Just(HoldDoes::Charge),
        1 => Just(HoldDoes::Refund),
        1 => Just(HoldDoes::Reset),
        1 => prop_oneof![Just(0), 1..20_u64].prop_map(HoldDoes::Block),
    ];
    let cost = prop_oneof![
        8 => (0..6_u64).prop_map(Some),
        3 => Just(None),
        1 => (1..40_u64).prop_map(Some),
        1 => prop_oneof![Just(1 << 52), Just((1 << 52) + 1), any::<u64>()].prop_map(Some),
    ];
    let ttl = prop_oneof![6 => 5..60_u64, 1 => Just(1), 1 => Just(1 << 51)];
    let costs = prop::collection::vec(cost, 3);
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.2), prop::bool::weighted(0.9));
    (passes, does, 0..3_u8, ttl, costs, flags).prop_map(
        |(passes, does, id, ttl, costs, (checks_last, has_list, fits))| HoldStep {
            passes,
            does,
            id,
            ttl,
            costs,
            checks_last,
            has_list,
            fits,
        },
    )
}

/// A call of a scenario of holds.
#[derive(Debug, Clone)]
pub struct HoldCall<'s> {
    /// The time of the call.
    pub now: Timestamp,
    /// The operation of the call.
    pub operation: Operation,
    /// The charges of the call.
    pub charges: Vec<Charge<'s>>,
    /// The id of the hold and its time to live, if the operation names a hold.
    pub id: Option<([u8; 1], Duration)>,
    /// The number of the caller, which is also the id of its hold.
    caller: u8,
}

/// The last place in a queue that each caller of a scenario got. The last caller begins with a
/// place that it did not get.
#[derive(Debug, Clone)]
pub struct Places([u64; 6]);

impl Default for Places {
    fn default() -> Self {
        Self([0, 0, 0, 0, 0, 1])
    }
}

impl Places {
    /// Returns the operation of a call, with the last place of its caller.
    #[must_use]
    pub fn operation(&self, call: &HoldCall<'_>) -> Operation {
        let place = self.0.get(usize::from(call.caller)).copied().unwrap_or(0);
        match call.operation {
            Operation::HoldInTurn { .. } => Operation::HoldInTurn { place },
            Operation::Leave { .. } => Operation::Leave { place },
            operation => operation,
        }
    }

    /// Records the place in the answer to a call.
    pub fn learn(&mut self, call: &HoldCall<'_>, answer: &Result<Decision, Error>) {
        let place = answer.as_ref().ok().and_then(Decision::place);
        if let (Some(place), Some(last)) = (place, self.0.get_mut(usize::from(call.caller))) {
            *last = place.number;
        }
    }
}

impl HoldScenario {
    /// Returns the calls of the scenario, in the order of the trace.
    #[must_use]
    pub fn calls(&self) -> Vec<HoldCall<'_>> {
        // The charges of the last hold under each id.
        let mut held: [Vec<Charge<'_>>; 6] = Default::default();
        let mut now = self.start;
        let mut calls = vec![];
        for step in &self.steps {
            now = Timestamp::from_micros(now.saturating_add(step.passes)).as_micros();
            let last_held = &mut held[usize::from(step.id) % 6];
            let names_hold = matches!(
                step.does,
                HoldDoes::Settle | HoldDoes::SettleSoFar | HoldDoes::Extend | HoldDoes::Leave
            );
            let charges = if names_hold && step.fits && !last_held.is_empty() {
                let costs = step.costs.iter().map(|cost| cost.unwrap_or(1)).cycle();
                // A settlement gives no cost for slots.
                let is_free = |charge: &Charge<'_>| charge.policy.is_concurrent() && step.id > 0;
                let charges = last_held.iter().zip(costs);
                charges
                    .map(|(charge, cost)| charge.cost(if is_free(charge) { 0 } else { cost }))
                    .collect()
            } else {
                self.charges(step)
            };
            let operation = match step.does {
                HoldDoes::Hold => Operation::Hold,
                HoldDoes::HoldUpTo(min) => {
                    let costs = charges.iter().filter(|charge| !charge.is_check_only);
                    let smallest = costs.map(|charge| charge.cost).min().unwrap_or(1);
                    Operation::HoldUpTo { min: min.min(smallest).max(1) }
                }
                HoldDoes::HoldInTurn => Operation::HoldInTurn { place: 0 },
                HoldDoes::Leave => Operation::Leave { place: 0 },
                HoldDoes::Settle => Operation::Settle,
                HoldDoes::SettleSoFar => Operation::SettleSoFar,
                HoldDoes::Extend => Operation::Extend,
                HoldDoes::Acquire => Operation::Acquire,
                HoldDoes::Peek => Operation::Peek,
                HoldDoes::Charge => Operation::Charge,
                HoldDoes::Refund => Operation::Refund,
                HoldDoes::Reset => Operation::Reset,
                HoldDoes::Block(span) => Operation::Block { span: Duration::from_micros(span) },
            };
            if operation.is_of_hold() && operation.is_acquire() {
                last_held.clone_from(&charges);
            }
            let ttl = Duration::from_micros(step.ttl);
            let id = operation.is_of_hold().then_some(([step.id], ttl));
            let (now, caller) = (Timestamp::from_micros(now), step.id);
            calls.push(HoldCall { now, operation, charges, id, caller });
        }
        calls
    }

    fn charges(&self, step: &HoldStep) -> Vec<Charge<'_>> {
        let policies = self.policies.iter().zip(&step.costs);
        // Only holds take slots. Other operations on slots are errors, so most traces have none.
        let is_possible = |policy: &Policy| {
            use HoldDoes::{Acquire, Charge, HoldUpTo, Refund};
            let is_error = matches!(step.does, HoldUpTo(_) | Acquire | Charge | Refund);
            !policy.is_concurrent() || !is_error || step.id == 0
        };
        let charge = |(policy, cost): (_, &Option<u64>)| {
            Some(Charge::new(policy, b"s").tenant(b"t").cost((*cost)?))
        };
        let policies = policies.filter(|(policy, _)| is_possible(policy));
        let mut charges: Vec<Charge<'_>> = policies.filter_map(charge).collect();
        if charges.is_empty() {
            let first = self.policies.iter().take(1);
            charges.extend(first.map(|policy| Charge::new(policy, b"s").tenant(b"t")));
        }
        if let Some(last) = charges.last_mut().filter(|_| step.checks_last) {
            *last = last.check_only();
        }
        let accepts_lists = matches!(
            step.does,
            HoldDoes::Hold
                | HoldDoes::Settle
                | HoldDoes::SettleSoFar
                | HoldDoes::Extend
                | HoldDoes::Acquire
                | HoldDoes::Peek
        );
        if step.has_list && accepts_lists {
            join(&mut charges);
        }
        charges
    }
}
