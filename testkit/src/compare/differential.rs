//! Differential runs, in which a store and the core receive the same calls at the same virtual
//! times. The decisions of both must be identical.
#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "a difference is reported by a panic, because tests fail by panicking"
)]

use std::future::Future;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tidegate_core::{Charge, ManualClock, Operation, Policy, Store, Timestamp};
use tokio::task::JoinSet;

use crate::call_log::CallLog;
use crate::compare::against_oracle::{is_grant_without_ids, is_unsupported_over_slots};
use crate::env::from_env;
use crate::generate::{
    ClockKind, Kind, Scenario, Trace, policy, related_policies, scenario, seeded_rng,
    several_policies,
};
use crate::show;
use crate::stores::ModelStore;

/// A store in virtual time that can be emptied. The macro [`differential!`](crate::differential!)
/// compares such a store with the core.
pub trait DifferentialStore: Send + 'static {
    /// The type of the store.
    type Store: Store;

    /// Returns the store that is compared with the core.
    fn store(&self) -> &Self::Store;

    /// Returns the clock that the store uses.
    fn clock(&self) -> &ManualClock;

    /// Removes everything that the store contains.
    fn empty(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns how the clock moves in a run. By default, the clock moves forwards and back. If your
    /// store drops recovered states, return [`ClockKind::Forwards`]. The core keeps all states, so
    /// after the clock steps back, its answers would differ from the answers of your store.
    fn moves(_: Run) -> ClockKind {
        ClockKind::Jumping
    }

    /// Returns the minimum number of operations per test. If the variable `TIDEGATE_OPERATIONS` is
    /// set, its value is used instead.
    fn operations() -> usize {
        20_000
    }
}

/// The kind of calls in a differential run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Run {
    /// Calls with one charge, under a policy with this kind of algorithm.
    One(Kind),
    /// Calls with several charges to several policies.
    Several,
    /// Batches of calls with up to two charges each.
    Batches,
    /// Calls under policies whose limit, algorithm or window changes, while the name stays the
    /// same.
    Changed,
}

/// Executes random scenarios on all stores concurrently, until enough operations are executed. The
/// stores must share no state. With several stores, the run is faster, because the other stores
/// continue while one store waits for an answer from the network.
///
/// # Panics
///
/// Panics if a decision of a store differs from the decision of the core. The message contains the
/// smallest scenario in which the decisions differ, and the last calls of this scenario.
pub async fn differ(stores: Vec<impl DifferentialStore>, run: Run) {
    let (policies, charges) = match run {
        Run::One(kind) => (policy(kind, "p").prop_map(|p| vec![p]).boxed(), 1),
        Run::Several => (several_policies().boxed(), 4),
        Run::Batches => (several_policies().boxed(), 2),
        Run::Changed => (Kind::any().prop_flat_map(|kind| related_policies(kind, "p")).boxed(), 1),
    };
    play_all(stores, policies, charges, run).await;
}

async fn play_all<E: DifferentialStore>(
    mut stores: Vec<E>,
    policies: impl Strategy<Value = Vec<Policy>>,
    charges: usize,
    run: Run,
) {
    let mut runner = TestRunner::new_with_rng(Config::default(), seeded_rng(0));
    let moves = E::moves(run);
    let scenarios = scenario(policies, moves, 60, charges);
    let (wanted, mut made, mut rounds) = (from_env("TIDEGATE_OPERATIONS", E::operations()), 0, 0);
    while made < wanted {
        let batch = if matches!(run, Run::Batches) { 1 + rounds % 9 } else { 1 };
        let replay = Replay { moves, batch };
        let new_tree = |_| scenarios.new_tree(&mut runner).expect("a scenario can be generated");
        let mut trees: Vec<_> = stores.iter().map(new_tree).collect();
        let mut plays = JoinSet::new();
        for (place, mut store) in stores.drain(..).enumerate() {
            let scenario = trees[place].current();
            plays.spawn(async move { (replay.play(&mut store, &scenario).await, place, store) });
        }
        for (played, place, mut store) in plays.join_all().await {
            match played {
                Ok(calls) => made += calls,
                Err(error) => {
                    let tree = &mut trees[place];
                    let error = replay.smallest(&mut store, tree, error).await;
                    panic!(
                        "the smallest scenario in which the store differs from the core, in batches of {batch}:\n  \
                         {error}"
                    );
                }
            }
            stores.push(store);
        }
        rounds += 1;
    }
}

#[derive(Debug, Clone, Copy)]
struct Replay {
    moves: ClockKind,
    batch: usize,
}

impl Replay {
    /// Executes a scenario on the store, which is emptied first. Returns the number of calls, or an
    /// error that describes the first difference.
    async fn play(
        self,
        subject: &mut impl DifferentialStore,
        scenario: &Scenario,
    ) -> Result<usize, String> {
        subject.empty().await;
        let (store, clock) = (subject.store(), subject.clock());
        let model = ModelStore::keeping_all(clock.clone());
        let mut trace = Trace::new(scenario, self.moves);
        let (mut made, mut log) = (0, CallLog::default());
        for steps in scenario.steps.chunks(self.batch) {
            let now: Timestamp = trace.pass(&steps[0]);
            clock.set(now);
            let requests: Vec<(Operation, Vec<Charge<'_>>)> =
                steps.iter().map(|step| trace.ask(step)).collect();
            let calls: Vec<_> = requests
                .iter()
                .map(|(operation, charges)| trace.call(*operation, charges))
                .collect();
            let expected = model.decide_many(&calls).await;
            let answers = match &calls[..] {
                [call] => vec![store.decide(*call).await],
                calls => store.decide_many(calls).await,
            };
            assert_eq!(answers.len(), calls.len());
            for ((call, expected), answer) in calls.iter().zip(&expected).zip(&answers) {
                match (expected, answer) {
                    (Ok(expected), Ok(actual)) if expected == actual => trace.answered(actual),
                    (Err(expected), Err(actual)) if expected.kind() == actual.kind() => {}
                    _ if is_unsupported_over_slots(call, answer)
                        || is_grant_without_ids(call, answer) =>
                    {
                        return Ok(made);
                    }
                    _ => {
                        return Err(format!(
                            "at {now:?}: {}\n    expected: {}\n    actual:   {}{}",
                            show::call(call),
                            show::answer(expected),
                            show::answer(answer),
                            log.show(),
                        ));
                    }
                }
                log.add(now, call, answer);
            }
            made += calls.len();
        }
        Ok(made)
    }

    /// Searches for the smallest scenario that still fails. Returns the error of this scenario.
    async fn smallest(
        self,
        store: &mut impl DifferentialStore,
        tree: &mut impl ValueTree<Value = Scenario>,
        mut error: String,
    ) -> String {
        let mut has_more = tree.simplify();
        // The search is bounded by 2,000 steps, and by the variable `PROPTEST_MAX_SHRINK_ITERS`.
        for _ in 0..Config::default().max_shrink_iters.min(2_000) {
            if !has_more {
                break;
            }
            has_more = match self.play(store, &tree.current()).await {
                Ok(_) => tree.complicate(),
                Err(smaller) => {
                    error = smaller;
                    tree.simplify()
                }
            };
        }
        error
    }
}

/// Generates a module of tests: one differential run for each algorithm, one for several charges,
/// one for batches, and one for changed policies.
///
/// The first argument is the name of the module. The second argument is an async function that
/// opens the stores. The function returns any number of stores, which must share no state, and a
/// guard. The test drops the guard at its end.
#[macro_export]
macro_rules! differential {
    ($module:ident, $open:expr) => {
        mod $module {
            use super::*;
            use $crate::differential::Run;
            use $crate::generate::Kind;

            $crate::__runs! { ($open)
                fixed_windows_decide_as_in_the_core: Run::One(Kind::FixedWindow),
                sliding_logs_decide_as_in_the_core: Run::One(Kind::SlidingLog),
                sliding_counters_decide_as_in_the_core: Run::One(Kind::SlidingCounter),
                token_buckets_decide_as_in_the_core: Run::One(Kind::TokenBucket),
                interval_buckets_decide_as_in_the_core: Run::One(Kind::IntervalBucket),
                gcra_decides_as_in_the_core: Run::One(Kind::Gcra),
                quotas_decide_as_in_the_core: Run::One(Kind::Quota),
                fair_pools_decide_as_in_the_core: Run::One(Kind::FairPool),
                several_charges_decide_as_in_the_core: Run::Several,
                batches_decide_as_in_the_core: Run::Batches,
                changed_policies_decide_as_in_the_core: Run::Changed,
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __runs {
    (($open:expr) $($name:ident: $run:expr,)+) => {$(
        #[tokio::test]
        async fn $name() {
            let (stores, _guard) = $open().await;
            $crate::differential::differ(stores, $run).await;
        }
    )+};
}
