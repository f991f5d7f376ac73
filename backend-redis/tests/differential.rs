//! The same calls, at the same virtual time, through the real Lua and through the core: identical
//! decisions, at least 100,000 operations for each algorithm.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidegate_redis::{Call, Charge, ManualClock, Operation, Policy, RedisStore, Store, Timestamp};
use tidegate_testkit::ModelStore;
use tidegate_testkit::generate::{
    ClockKind, Kind, Scenario, Trace, policy, related_policies, scenario,
};
use tidegate_testkit::servers::{Client, Redis};
use tokio::task::JoinSet;

/// How many operations each test makes: the variable `TIDEGATE_OPERATIONS`, or 100,000.
fn operations() -> usize {
    let text = std::env::var("TIDEGATE_OPERATIONS").unwrap_or_else(|_| "100000".to_owned());
    text.parse().unwrap()
}

/// How many scenarios are played at the same time, so that one need not wait for another's answers.
const AT_ONCE: u16 = 8;

/// A store, in a database of its own.
struct Lua {
    store: RedisStore,
    clock: ManualClock,
    client: Client,
}

impl Lua {
    async fn new(redis: &Redis, database: u16) -> Self {
        let clock = ManualClock::default();
        let builder = RedisStore::builder().url(redis.socket_url()).database(database);
        // The machine that runs the tests may be slow; none of them is about a timeout.
        let builder = builder.response_timeout(Duration::from_secs(30)).clock(clock.clone());
        let mut client = redis.client().await.unwrap();
        client.call(&["SELECT", &database.to_string()]).await.unwrap();
        Self { store: builder.build().unwrap(), clock, client }
    }

    /// Plays a scenario on an empty database and tells how many calls it made, or where the stores differ.
    async fn play(&mut self, scenario: &Scenario, batch: usize) -> Result<usize, String> {
        assert_eq!(self.client.call(&["FLUSHDB"]).await.unwrap().text(), "OK");
        let model = ModelStore::keeping_all(self.clock.clone());
        let mut trace = Trace::new(scenario, ClockKind::Jumping);
        let mut made = 0;
        for steps in scenario.steps.chunks(batch) {
            let now: Timestamp = trace.pass(&steps[0]);
            self.clock.set(now);
            let asked: Vec<(Operation, Vec<Charge<'_>>)> =
                steps.iter().map(|step| trace.ask(step)).collect();
            let calls: Vec<_> = asked.iter().map(|(o, c)| Call::new(*o, c)).collect();
            let expected = model.decide_many(&calls).await;
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

/// Random, but the same each time: by the variable `TIDEGATE_SEED`, or 1.
fn seeded() -> TestRng {
    let seed = std::env::var("TIDEGATE_SEED").map_or(1, |seed| seed.parse::<u64>().unwrap());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    // Without optimization the other algorithm takes as long as all the rest.
    TestRng::from_seed(RngAlgorithm::XorShift, &bytes)
}

/// Plays random scenarios until enough operations are made.
fn differ(policies: impl Strategy<Value = Vec<Policy>>, charges: usize, batches: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = Redis::start().await.unwrap();
        let mut runner = TestRunner::new_with_rng(Config::default(), seeded());
        let scenarios = scenario(policies, ClockKind::Jumping, 60, charges);
        let mut stores = vec![];
        for database in 0..AT_ONCE {
            stores.push(Lua::new(&redis, database).await);
        }
        let (mut made, mut rounds) = (0, 0);
        while made < operations() {
            let batch = if batches { 1 + rounds % 9 } else { 1 };
            let mut trees: Vec<_> =
                stores.iter().map(|_| scenarios.new_tree(&mut runner).unwrap()).collect();
            let mut plays = JoinSet::new();
            for (place, mut store) in stores.drain(..).enumerate() {
                let scenario = trees[place].current();
                plays.spawn(async move { (store.play(&scenario, batch).await, place, store) });
            }
            for (played, place, mut store) in plays.join_all().await {
                match played {
                    Ok(calls) => made += calls,
                    Err(error) => {
                        let tree = &mut trees[place];
                        let (smallest, error) = smallest(&mut store, tree, batch, error).await;
                        panic!("batches of {batch}: {smallest:#?}\n{error}");
                    }
                }
                stores.push(store);
            }
            rounds += 1;
        }
    });
}

/// The smallest scenario like that of the tree that still fails, as it says most, and its error.
async fn smallest(
    store: &mut Lua,
    tree: &mut impl ValueTree<Value = Scenario>,
    batch: usize,
    mut error: String,
) -> (Scenario, String) {
    let mut smallest = tree.current();
    let mut more = tree.simplify();
    for _ in 0..2_000 {
        if !more {
            break;
        }
        more = match store.play(&tree.current(), batch).await {
            Ok(_) => tree.complicate(),
            Err(smaller) => {
                (error, smallest) = (smaller, tree.current());
                tree.simplify()
            }
        };
    }
    (smallest, error)
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
