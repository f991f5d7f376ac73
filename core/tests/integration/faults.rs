//! Tests against the defects B42 to B44, B47 and B55: several nodes use one store that loses,
//! delays and fails calls. With every failure policy, the admitted costs must be within the
//! documented bounds, each call must be charged at most once, and no error must look like a
//! decision.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::layers::{BreakerStore, FallbackStore, TimeoutStore};
use tidegate_core::{
    Breaker, Call, Charge, Decision, DegradedAnswer, ManualClock, OnFailure, Operation, Policy,
    Share, Store, StoreExt, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::faults::{Fault, Faults, FaultyStore, plan};

const START: u64 = 1_790_000_000_000_123;
const HOUR: u64 = 3_600_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Open,
    Closed,
    FallBack,
}

#[derive(Debug, Clone)]
struct Step {
    node: prop::sample::Index,
    cost: u64,
    /// The pause before the call, in milliseconds.
    pause: u64,
    /// Whether all delayed calls and answers of all nodes are delivered in this step.
    delivers: bool,
}

#[derive(Debug, Clone)]
struct Scenario {
    setting: Setting,
    policy: Policy,
    /// For each node, the faults of its calls, and the number of microseconds by which its clock is
    /// ahead.
    nodes: Vec<(Vec<Fault>, u64)>,
    /// The number of failures after which the circuit of a node opens.
    failures: u32,
    steps: Vec<Step>,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let setting = prop::sample::select(vec![Setting::Open, Setting::Closed, Setting::FallBack]);
    let policy = prop_oneof![
        (1..12_u64).prop_map(|limit| format!("p: sliding-log {limit}/1h")),
        (1..12_u64).prop_map(|limit| format!("p: fixed-window {limit}/1h anchored")),
        (1..12_u64, 1..4_u64).prop_map(|(b, r)| format!("p: token-bucket {r}/1s burst {b}")),
    ];
    let policy = policy.prop_map(|text| text.parse().unwrap());
    let step = (any::<prop::sample::Index>(), 1..3_u64, 0..500_u64, prop::bool::weighted(0.2));
    let step = step.prop_map(|(node, cost, pause, delivers)| Step { node, cost, pause, delivers });
    let nodes = prop::collection::vec((plan(0..30), 0..10_000_000_u64), 1..4);
    let steps = prop::collection::vec(step, 1..60);
    (setting, policy, nodes, 1..5_u32, steps).prop_map(
        |(setting, policy, nodes, failures, steps)| Scenario {
            setting,
            policy,
            nodes,
            failures,
            steps,
        },
    )
}

type Faulty<'m> = FaultyStore<&'m ModelStore>;

struct Node<'m> {
    /// The clock of the node, which is possibly ahead of the other clocks.
    clock: ManualClock,
    store: FallbackStore<BreakerStore<TimeoutStore<Faulty<'m>>, ManualClock>>,
}

impl<'m> Node<'m> {
    fn new(main: &'m ModelStore, scenario: &Scenario, (plan, ahead): &(Vec<Fault>, u64)) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(START + ahead));
        let breaker =
            Breaker::new().failures(scenario.failures).open_for(Duration::from_millis(300));
        let on_failure = match scenario.setting {
            Setting::Open => OnFailure::open().with_fallback(ModelStore::new(clock.clone())),
            Setting::Closed => OnFailure::closed().with_fallback(ModelStore::new(clock.clone())),
            Setting::FallBack => {
                let share = Share::new(1, u32::try_from(scenario.nodes.len()).unwrap()).unwrap();
                OnFailure::fall_back_to(ModelStore::new(clock.clone()), share)
            }
        };
        let store = main
            .layer(Faults::new(plan.clone()))
            .timeout(Duration::from_millis(50))
            .breaker(breaker.clock(clock.clone()))
            .on_failure(on_failure);
        Self { clock, store }
    }

    fn faulty(&self) -> &Faulty<'m> {
        self.store.inner().inner().inner()
    }
}

/// The admitted costs, and the costs that are possibly charged.
#[derive(Debug, Default)]
struct Sums {
    by_main: u64,
    without_store: u64,
    by_fallback: u64,
    /// The cost of failed calls that the store has possibly charged.
    perhaps_charged: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_more_is_admitted_than_documented(scenario in scenarios()) {
        crate::run(check(&scenario))?;
    }
}

async fn check(scenario: &Scenario) -> Result<(), TestCaseError> {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let main = ModelStore::keeping_all(clock.clone());
    let nodes: Vec<_> =
        scenario.nodes.iter().map(|node| Node::new(&main, scenario, node)).collect();
    let mut sums = Sums::default();
    for step in &scenario.steps {
        let pause = Duration::from_millis(step.pause);
        clock.advance(pause);
        nodes.iter().for_each(|node| node.clock.advance(pause));
        let node = &nodes[step.node.index(nodes.len())];
        let before = node.faulty().as_layer().calls();
        let remaining_before = remaining(&main, scenario).await;
        let charges = [Charge::new(&scenario.policy, "s").cost(step.cost)];
        let decision = node.store.decide(Call::acquire(&charges)).await;
        let decision = decision.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(node.faulty().as_layer().calls() <= before + 1, "a call is sent at most once");
        tally(scenario.setting, &decision, step.cost, remaining_before, &mut sums)?;
        if step.delivers {
            deliver(&nodes).await;
        }
    }
    deliver(&nodes).await;
    let remaining = remaining(&main, scenario).await;
    compare(scenario, &sums, remaining, clock_since_start(&clock))
}

async fn deliver(nodes: &[Node<'_>]) {
    for node in nodes {
        Faults::deliver(node.faulty()).await;
    }
}

/// Adds the cost of a decision to `sums`, and checks that the failure policy (`setting`) allows
/// this decision.
fn tally(
    setting: Setting,
    decision: &Decision,
    cost: u64,
    remaining: u64,
    sums: &mut Sums,
) -> Result<(), TestCaseError> {
    let Some(degraded) = decision.degraded() else {
        prop_assert_eq!(decision.is_allowed(), cost <= remaining, "a decision of the store");
        sums.by_main += if decision.is_allowed() { cost } else { 0 };
        return Ok(());
    };
    sums.perhaps_charged += if degraded.reason.is_definitely_not_charged() { 0 } else { cost };
    let admitted = if decision.is_allowed() { cost } else { 0 };
    match (setting, degraded.answer) {
        (Setting::Open, DegradedAnswer::FailedOpen) => sums.without_store += admitted,
        (Setting::FallBack, DegradedAnswer::FellBack) => sums.by_fallback += admitted,
        // With `Setting::FallBack`, a policy with a share of zero fails closed.
        (Setting::Closed | Setting::FallBack, DegradedAnswer::FailedClosed) => {
            prop_assert!(decision.is_denied());
        }
        (setting, answer) => prop_assert!(false, "{:?} for {:?}", answer, setting),
    }
    Ok(())
}

async fn remaining(main: &ModelStore, scenario: &Scenario) -> u64 {
    let charges = [Charge::new(&scenario.policy, "s").cost(0)];
    let peek = main.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    peek.verdicts()[0].remaining()
}

fn clock_since_start(clock: &ManualClock) -> u64 {
    use tidegate_core::Clock;
    clock.now().as_micros() - START
}

/// Compares the admitted costs with the documented bounds.
fn compare(
    scenario: &Scenario,
    sums: &Sums,
    remaining: u64,
    elapsed: u64,
) -> Result<(), TestCaseError> {
    let policy = &scenario.policy;
    assert!(elapsed < HOUR, "the scenario must fit into one window");
    let text = policy.to_string();
    let max = match text.split_once("token-bucket ") {
        // The refill is rounded down, because a fraction of a token admits nothing.
        Some((_, rate)) => {
            let rate: u64 = rate.split_once("/1s").unwrap().0.parse().unwrap();
            policy.limit() + rate * elapsed / 1_000_000
        }
        None => {
            let charged = policy.limit() - remaining;
            prop_assert!(sums.by_main <= charged, "{:?}, but {} charged", sums, charged);
            prop_assert!(
                charged <= sums.by_main + sums.perhaps_charged,
                "{:?}: charged twice",
                sums
            );
            policy.limit()
        }
    };
    prop_assert!(sums.by_main <= max, "{:?}; the maximum is {}", sums, max);
    prop_assert!(sums.by_fallback <= max, "{:?}; the maximum is {}", sums, max);
    prop_assert!(scenario.setting == Setting::Open || sums.without_store == 0);
    Ok(())
}
