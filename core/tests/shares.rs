//! B47: nodes that decide without one another, each by its share, together admit what one policy
//! admits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::{
    Algorithm, Call, Charge, Clock, Decision, ManualClock, Outcome, Policy, Share, Store, Timestamp,
};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{Kind, policy};

/// A time at which no window begins or ends.
const START: u64 = 1_790_000_000_000_123;

/// What passed: when, and how much.
type Passed = Vec<(u64, u64)>;

#[derive(Debug, Clone)]
struct Step {
    node: prop::sample::Index,
    cost: u64,
    /// Microseconds, in parts of the policy's span.
    pause: (u64, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause =
        prop_oneof![2 => Just((0, 1)), 3 => (1..4_u64, 1..9_u32), 1 => (1..30_u64, 1..2_u32)];
    let step = (any::<prop::sample::Index>(), 1..4_u64, pause);
    let step = step.prop_map(|(node, cost, pause)| Step { node, cost, pause });
    prop::collection::vec(step, 1..120)
}

fn policies() -> impl Strategy<Value = Policy> {
    Kind::any().prop_flat_map(|kind| policy(kind, "p"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nodes_together_admit_at_most_what_one_policy_does(
        policy in policies(),
        parts in prop::collection::vec(0..4_u32, 1..6),
        steps in steps(),
    ) {
        let of = parts.iter().sum::<u32>().max(1);
        let scaled = parts.iter().map(|part| policy.scaled_to(Share::new(*part, of).unwrap()));
        // What has no share is refused by name, before it decides anything.
        let Ok(scaled) = scaled.collect::<Result<Vec<_>, _>>() else {
            return Ok(());
        };
        let limits: u64 = scaled.iter().flatten().map(Policy::limit).sum();
        prop_assert!(limits <= policy.limit());
        let passed = run(&policy, &scaled, &steps);
        check(&policy, &scaled, &passed)?;
    }
}

/// What passes on the nodes, each with a store of its own.
fn run(policy: &Policy, scaled: &[Option<Policy>], steps: &[Step]) -> Passed {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let stores: Vec<_> = scaled.iter().map(|_| ModelStore::new(clock.clone())).collect();
    let span = span(policy);
    let mut passed = Vec::new();
    for step in steps {
        let pause =
            (u128::from(span) * u128::from(step.pause.0) / u128::from(step.pause.1)).min(1 << 44);
        clock.advance(Duration::from_micros(u64::try_from(pause).unwrap()));
        let node = step.node.index(scaled.len());
        let Some(policy) = &scaled[node] else {
            continue;
        };
        if outcome(&ask(&stores[node], policy, step.cost)) == Outcome::Allowed {
            passed.push((clock.now().as_micros(), step.cost));
        }
    }
    passed
}

fn ask(store: &ModelStore, policy: &Policy, cost: u64) -> Decision {
    let charges = [Charge::new(policy, "s").cost(cost)];
    store.decide(Call::acquire(&charges)).into_ready().unwrap().unwrap()
}

/// As if the policy were in force, which a shadow is not.
fn outcome(decision: &Decision) -> Outcome {
    decision.verdicts()[0].outcome()
}

/// The window or the period.
fn span(policy: &Policy) -> u64 {
    let span = match policy.algorithm() {
        Algorithm::FixedWindow(spec) => spec.window(),
        Algorithm::SlidingLog(spec) => spec.window(),
        Algorithm::SlidingCounter(spec) => spec.window(),
        Algorithm::TokenBucket(spec) => spec.period(),
        Algorithm::Gcra(spec) => spec.period(),
        _ => unreachable!("no other algorithm"),
    };
    u64::try_from(span.as_micros()).unwrap()
}

fn check(policy: &Policy, scaled: &[Option<Policy>], passed: &Passed) -> Result<(), TestCaseError> {
    let tick = |policy: &Policy| policy.rule().tick();
    let ticks = scaled.iter().flatten().map(tick).max().unwrap_or(1).max(tick(policy));
    match policy.algorithm() {
        // Windows of several nodes may begin at different times: then, as with one node, up to twice
        // the limit may pass around the end of one.
        Algorithm::FixedWindow(spec) if spec.start() == Start::Anchored => {
            within_any_window(passed, span(policy), 2 * u128::from(policy.limit()))?;
        }
        Algorithm::TokenBucket(spec) if spec.is_by_interval() => {
            within_rate(&passed[..], policy, spec.refill(), 0)?;
        }
        Algorithm::TokenBucket(spec) => within_any_rate(passed, policy, spec.refill(), ticks)?,
        Algorithm::Gcra(spec) => within_any_rate(passed, policy, spec.refill(), ticks)?,
        Algorithm::SlidingLog(_) => {
            within_any_window(passed, span(policy), u128::from(policy.limit()))?;
        }
        _ => {}
    }
    let one_node_decides_alike = match policy.algorithm() {
        Algorithm::FixedWindow(spec) => spec.start() != Start::Anchored,
        Algorithm::TokenBucket(spec) => !spec.is_by_interval(),
        _ => true,
    };
    // A coarser tick admits a little later, and is no measure for a finer one.
    if one_node_decides_alike && scaled.iter().flatten().all(|scaled| tick(scaled) == tick(policy))
    {
        would_pass_on_one_node(policy, passed)?;
    }
    Ok(())
}

fn would_pass_on_one_node(policy: &Policy, passed: &Passed) -> Result<(), TestCaseError> {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let store = ModelStore::new(clock.clone());
    for &(time, cost) in passed {
        clock.set(Timestamp::from_micros(time));
        prop_assert_eq!(outcome(&ask(&store, policy, cost)), Outcome::Allowed, "at {}", time);
    }
    Ok(())
}

fn within_any_window(passed: &Passed, window: u64, most: u128) -> Result<(), TestCaseError> {
    for (place, &(end, _)) in passed.iter().enumerate() {
        let inside = passed[..=place].iter().filter(|(time, _)| time + window > end);
        let sum: u128 = inside.map(|(_, cost)| u128::from(*cost)).sum();
        prop_assert!(sum <= most, "{} passed in the window that ends at {}", sum, end);
    }
    Ok(())
}

fn within_any_rate(
    passed: &Passed,
    policy: &Policy,
    refill: u64,
    tick: u64,
) -> Result<(), TestCaseError> {
    (0..passed.len()).try_for_each(|first| within_rate(&passed[first..], policy, refill, tick))
}

/// At most `B + R·t/P` since the first, for every last. Within a tick too little may seem to pass.
fn within_rate(
    passed: &[(u64, u64)],
    policy: &Policy,
    refill: u64,
    tick: u64,
) -> Result<(), TestCaseError> {
    let (period, mut sum) = (u128::from(span(policy)), 0);
    for &(time, cost) in passed {
        sum += u128::from(cost);
        // A tick of one microsecond is exact.
        let elapsed = time - passed[0].0 + tick.saturating_sub(1);
        let most = u128::from(policy.limit()) * period + u128::from(refill) * u128::from(elapsed);
        prop_assert!(sum * period <= most, "{} passed by {}", sum, time);
    }
    Ok(())
}
