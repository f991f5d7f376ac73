//! Tests against defect B47: if nodes decide independently, each by its share, all nodes together
//! must admit at most as much as the whole policy admits.

use proptest::prelude::*;
use tidegate_core::{Clock, ManualClock, Outcome, Policy, Share, Timestamp};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{Kind, policy};

use super::bounds::{Admitted, START, acquire, check, outcome, pause};

#[derive(Debug, Clone)]
struct Step {
    node: prop::sample::Index,
    cost: u64,
    /// The pause before the request, as a fraction of the window or period of the policy.
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
        let whole = parts.iter().sum::<u32>().max(1);
        let scaled = parts.iter().map(|part| policy.scaled_to(Share::new(*part, whole).unwrap()));
        // If a share of the policy cannot be represented exactly, `scaled_to` returns an error, and
        // the test has no requests to check.
        let Ok(scaled) = scaled.collect::<Result<Vec<_>, _>>() else {
            return Ok(());
        };
        let limits: u64 = scaled.iter().flatten().map(Policy::limit).sum();
        prop_assert!(limits <= policy.limit());
        let admitted = run(&policy, &scaled, &steps);
        let scaled: Vec<Policy> = scaled.into_iter().flatten().collect();
        check(&policy, b"s", &scaled, &admitted)?;
    }
}

/// Returns the requests that are admitted on the nodes. Each node has its own store.
fn run(policy: &Policy, scaled: &[Option<Policy>], steps: &[Step]) -> Admitted {
    let clock = ManualClock::new(Timestamp::from_micros(START));
    let stores: Vec<_> = scaled.iter().map(|_| ModelStore::new(clock.clone())).collect();
    let mut admitted = Vec::new();
    for step in steps {
        clock.advance(pause(policy, step.pause));
        let node = step.node.index(scaled.len());
        let Some(policy) = &scaled[node] else {
            continue;
        };
        if outcome(&acquire(&stores[node], policy, b"s", step.cost)) == Outcome::Allowed {
            admitted.push((clock.now().as_micros(), step.cost));
        }
    }
    admitted
}
