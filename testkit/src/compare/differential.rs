//! Differential runs: the same calls, at the same virtual time, to a store and to the core; identical
//! decisions, over many operations for each algorithm.
#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "a store that differs is told by a panic: that is how tests fail"
)]

use std::future::Future;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use tidegate_core::{Call, Charge, ManualClock, Operation, Policy, Store, Timestamp};
use tokio::task::JoinSet;

use crate::compare::against_oracle::is_unsupported_over_slots;
use crate::env::from_env;
use crate::generate::{
    ClockKind, Kind, Scenario, Trace, policy, related_policies, scenario, seeded_rng,
};
use crate::show;
use crate::stores::ModelStore;
use crate::suite::report::Calls;

/// A store in virtual time that can be emptied, for [`differential!`](crate::differential!).
pub trait Emptied: Send + 'static {
    /// The store.
    type Store: Store;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// The clock whose time it shows.
    fn clock(&self) -> &ManualClock;

    /// Removes all that is stored.
    fn empty(&mut self) -> impl Future<Output = ()> + Send;

    /// How the clock moves: both ways, by default. A store that may drop a state once its clock has
    /// shown that it matters no more, where the core here keeps all, is asked with a clock that goes
    /// forwards only.
    fn moves(_: Run) -> ClockKind {
        ClockKind::Jumping
    }

    /// At least how many operations each test makes, unless the variable `TIDEGATE_OPERATIONS` says
    /// otherwise.
    fn operations() -> usize {
        100_000
    }
}

/// What a differential run is about.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// Calls of one charge to a policy of this kind.
    One(Kind),
    /// Calls of several charges to several policies.
    Several,
    /// Batches of calls of up to two charges.
    Batches,
    /// Policies that change under their name.
    Changed,
}

/// Plays random scenarios on all stores at the same time, so that one need not wait for another's
/// answers, until enough operations are made. The stores share nothing.
///
/// # Panics
///
/// If a store decides otherwise than the core, with the last calls of the smallest scenario in which it
/// does.
pub async fn differ(stores: Vec<impl Emptied>, run: Run) {
    let any = |name| Kind::any().prop_flat_map(move |kind| policy(kind, name));
    let (policies, charges) = match run {
        Run::One(kind) => (policy(kind, "p").prop_map(|p| vec![p]).boxed(), 1),
        Run::Several | Run::Batches => {
            let several = (any("p"), any("q"), any("r")).prop_map(|(p, q, r)| vec![p, q, r]);
            (several.boxed(), if matches!(run, Run::Several) { 4 } else { 2 })
        }
        Run::Changed => (Kind::any().prop_flat_map(|kind| related_policies(kind, "p")).boxed(), 1),
    };
    play_all(stores, policies, charges, run).await;
}

async fn play_all<E: Emptied>(
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
        let game = Game { moves, batch };
        let new_tree = |_| scenarios.new_tree(&mut runner).expect("a scenario can be made up");
        let mut trees: Vec<_> = stores.iter().map(new_tree).collect();
        let mut plays = JoinSet::new();
        for (place, mut store) in stores.drain(..).enumerate() {
            let scenario = trees[place].current();
            plays.spawn(async move { (game.play(&mut store, &scenario).await, place, store) });
        }
        for (played, place, mut store) in plays.join_all().await {
            match played {
                Ok(calls) => made += calls,
                Err(error) => {
                    let tree = &mut trees[place];
                    let error = game.smallest(&mut store, tree, error).await;
                    panic!("batches of {batch}, the smallest scenario that differs:\n  {error}");
                }
            }
            stores.push(store);
        }
        rounds += 1;
    }
}

/// How a scenario is played.
#[derive(Debug, Clone, Copy)]
struct Game {
    moves: ClockKind,
    /// How many calls are made at once.
    batch: usize,
}

impl Game {
    /// Plays a scenario on an empty store and tells how many calls it made, or where the stores differ.
    async fn play(self, subject: &mut impl Emptied, scenario: &Scenario) -> Result<usize, String> {
        subject.empty().await;
        let (store, clock) = (subject.store(), subject.clock());
        let model = ModelStore::keeping_all(clock.clone());
        let mut trace = Trace::new(scenario, self.moves);
        let (mut made, mut before) = (0, Calls::default());
        for steps in scenario.steps.chunks(self.batch) {
            let now: Timestamp = trace.pass(&steps[0]);
            clock.set(now);
            let asked: Vec<(Operation, Vec<Charge<'_>>)> =
                steps.iter().map(|step| trace.ask(step)).collect();
            let calls: Vec<_> = asked.iter().map(|(o, c)| Call::new(*o, c)).collect();
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
                    _ if is_unsupported_over_slots(call, answer) => {
                        return Ok(made);
                    }
                    _ => {
                        return Err(format!(
                            "at {now:?}: {}\n    expected: {}\n    actual:   {}{}",
                            show::call(call),
                            show::answer(expected),
                            show::answer(answer),
                            before.show(),
                        ));
                    }
                }
                before.add(now, call, answer);
            }
            made += calls.len();
        }
        Ok(made)
    }

    /// The error of the smallest scenario like that of the tree that still fails, as it says most.
    async fn smallest(
        self,
        store: &mut impl Emptied,
        tree: &mut impl ValueTree<Value = Scenario>,
        mut error: String,
    ) -> String {
        let mut more = tree.simplify();
        // `PROPTEST_MAX_SHRINK_ITERS` counts here too.
        for _ in 0..Config::default().max_shrink_iters.min(2_000) {
            if !more {
                break;
            }
            more = match self.play(store, &tree.current()).await {
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

/// Makes a module of tests: one differential run for each algorithm, and for several charges, batches
/// and changed policies.
///
/// The first argument names the module, the second is an async function that opens the stores to play
/// on, any number that share nothing, and returns them with what has to live as long as they do.
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
