//! The same calls, at the same virtual time, through the real Lua and through the core: identical
//! decisions, at least 100,000 operations for each algorithm.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod common;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidegate_redis::{Call, Charge, ManualClock, Operation, Policy, RedisStore, Store, Timestamp};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{
    ClockKind, Kind, Scenario, Trace, policy, related_policies, scenario,
};

use common::builder;

/// How many operations each test makes: the variable `TIDEGATE_OPERATIONS`, or 100,000.
fn operations() -> usize {
    let text = std::env::var("TIDEGATE_OPERATIONS").unwrap_or_else(|_| "100000".to_owned());
    text.parse().unwrap()
}

/// A store that can be emptied at once: it has a server's database for itself.
struct Lua {
    store: RedisStore,
    clock: ManualClock,
    model: ModelStore,
}

impl Lua {
    async fn new() -> Self {
        let clock = ManualClock::default();
        let store = builder().await.clock(clock.clone()).build().unwrap();
        let model = ModelStore::keeping_all(clock.clone());
        Self { store, clock, model }
    }

    async fn play(&self, scenario: &Scenario, batch: usize) -> Result<usize, String> {
        let mut trace = Trace::new(scenario, ClockKind::Jumping);
        let mut made = 0;
        for steps in scenario.steps.chunks(batch) {
            let now: Timestamp = trace.pass(&steps[0]);
            self.clock.set(now);
            let asked: Vec<(Operation, Vec<Charge<'_>>)> =
                steps.iter().map(|step| trace.ask(step)).collect();
            let calls: Vec<_> = asked.iter().map(|(o, c)| Call::new(*o, c)).collect();
            let expected = self.model.decide_many(&calls).await;
            let answers = match &calls[..] {
                [call] => vec![self.store.decide(*call).await],
                calls => self.store.decide_many(calls).await,
            };
            assert_eq!(answers.len(), calls.len());
            for ((call, expected), answer) in calls.iter().zip(&expected).zip(&answers) {
                match (expected, answer) {
                    (Ok(expected), Ok(answer)) if expected == answer => trace.answered(answer),
                    (Err(expected), Err(answer)) if expected.kind() == answer.kind() => {}
                    _ => {
                        return Err(format!(
                            "at {now:?}: {call:?}\n expected {expected:?}\n answered {answer:?}"
                        ));
                    }
                }
            }
            made += calls.len();
        }
        Ok(made)
    }
}

/// Plays random scenarios until enough operations are made.
fn differ(policies: impl Strategy<Value = Vec<Policy>>, charges: usize, batches: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seed = std::env::var("TIDEGATE_SEED").map_or(1, |seed| seed.parse::<u64>().unwrap());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let scenarios = scenario(policies, ClockKind::Jumping, 60, charges);
    let mut made = 0;
    while made < operations() {
        let mut tree = scenarios.new_tree(&mut runner).unwrap();
        let batch = if batches { 1 + made % 9 } else { 1 };
        let play = |scenario: &Scenario| {
            runtime.block_on(async { Lua::new().await.play(scenario, batch).await })
        };
        match play(&tree.current()) {
            Ok(steps) => made += steps,
            Err(mut error) => {
                // The smallest scenario that still fails says most.
                let mut smallest = tree.current();
                let mut more = tree.simplify();
                for _ in 0..2_000 {
                    if !more {
                        break;
                    }
                    more = match play(&tree.current()) {
                        Ok(_) => tree.complicate(),
                        Err(smaller) => {
                            (error, smallest) = (smaller, tree.current());
                            tree.simplify()
                        }
                    };
                }
                panic!("batches of {batch}: {smallest:#?}\n{error}");
            }
        }
    }
}

fn one(kind: Kind) -> impl Strategy<Value = Vec<Policy>> {
    policy(kind, "p").prop_map(|policy| vec![policy])
}

fn several() -> impl Strategy<Value = Vec<Policy>> {
    let any = |name| Kind::any().prop_flat_map(move |kind| policy(kind, name));
    (any("p"), any("q"), any("r")).prop_map(|(p, q, r)| vec![p, q, r])
}

#[test]
fn fixed_windows_decide_as_in_the_core() {
    differ(one(Kind::FixedWindow), 1, false);
}

#[test]
fn sliding_logs_decide_as_in_the_core() {
    differ(one(Kind::SlidingLog), 1, false);
}

#[test]
fn sliding_counters_decide_as_in_the_core() {
    differ(one(Kind::SlidingCounter), 1, false);
}

#[test]
fn token_buckets_decide_as_in_the_core() {
    differ(one(Kind::TokenBucket), 1, false);
}

#[test]
fn interval_buckets_decide_as_in_the_core() {
    differ(one(Kind::IntervalBucket), 1, false);
}

#[test]
fn gcra_decides_as_in_the_core() {
    differ(one(Kind::Gcra), 1, false);
}

#[test]
fn several_charges_decide_as_in_the_core() {
    differ(several(), 4, false);
}

#[test]
fn batches_decide_as_in_the_core() {
    differ(several(), 2, true);
}

#[test]
fn changed_policies_decide_as_in_the_core() {
    differ(Kind::any().prop_flat_map(|kind| related_policies(kind, "p")), 1, false);
}
