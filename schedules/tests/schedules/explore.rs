//! Runs a scenario in many interleavings of its tasks.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId,
    UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use tidegate_core::scheduled;

/// Schedules of each kind, unless `TIDEGATE_SCHEDULES` says otherwise.
const SCHEDULES: usize = 1_000;

/// Schedules that are run twice.
const REPEATED: usize = 10;

/// The depth of PCT: how many steps must come in a certain order for a bug to show, about.
const DEPTH: usize = 3;

/// Runs the scenario in many schedules: it must end in each, and break no assertion.
///
/// In half of them each step is of any task at random. In the others, each task has a priority,
/// which changes at few random steps (PCT): so tasks also wait for long at one place, while others
/// go on.
pub(crate) fn explore<F: Future<Output = ()> + 'static>(scenario: fn() -> F) {
    let _help = ReplayHelp;
    let run = move || {
        scheduled::begin();
        fastrand::seed(1);
        drop(spawn(scheduled::run_timers()));
        block_on(scenario());
    };
    if let Ok(file) = env::var("TIDEGATE_SCHEDULE") {
        let replay = ReplayScheduler::new_from_file(&file).expect("a file with a schedule");
        Runner::new(replay, config(FailurePersistence::None)).run(run);
        return;
    }
    let failures = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let config = || config(FailurePersistence::File(Some(failures.clone())));
    let (seed, schedules) =
        (number("PROPTEST_RNG_SEED", 1), number("TIDEGATE_SCHEDULES", SCHEDULES));
    // A schedule can be run again only if nothing but the scheduler chooses.
    let random = TimersLast(RandomScheduler::new_from_seed(seed, REPEATED));
    Runner::new(UncontrolledNondeterminismCheckScheduler::new(random), config()).run(run);
    let random = TimersLast(RandomScheduler::new_from_seed(seed, schedules));
    Runner::new(random, config()).run(run);
    let pct = TimersLast(PctScheduler::new_from_seed(seed, DEPTH, schedules));
    Runner::new(pct, config()).run(run);
}

fn config(failure_persistence: FailurePersistence) -> Config {
    let mut config = Config::new();
    config.failure_persistence = failure_persistence;
    config.max_steps = MaxSteps::FailAfter(100_000);
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    config
}

fn number<N: FromStr>(variable: &str, default: N) -> N {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => default,
    }
}

/// Says how to run a failed schedule again.
struct ReplayHelp;

impl Drop for ReplayHelp {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            let test = thread.name().unwrap_or_default();
            eprintln!(
                "to run the failing schedule again: TIDEGATE_SCHEDULE=<the file named above> .ci/schedules {test}"
            );
        }
    }
}

/// Runs the task of the timers only when no other one can run.
struct TimersLast<S>(S);

impl<S: Scheduler> Scheduler for TimersLast<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        // The first task that the scenario's own has spawned.
        let timers = TaskId::from(1);
        let others: Vec<_> = runnable.iter().copied().filter(|it| it.id() != timers).collect();
        let runnable = if others.is_empty() { runnable } else { &others };
        self.0.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Goes on after a number of steps of other tasks that the schedule chooses.
pub(crate) async fn some_time() {
    for _ in 0..thread_rng().gen_range(0..40) {
        yield_now().await;
    }
}

/// Goes on when all other tasks wait.
pub(crate) async fn idle() {
    scheduled::sleep(Duration::from_micros(1)).await;
}

/// The outputs of tasks, none of which is cancelled.
pub(crate) async fn join<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let mut outputs = vec![];
    for task in tasks {
        outputs.push(task.await.expect("no task is cancelled"));
    }
    outputs
}

/// Cancels a task at any of its steps. Returns its output, if it had ended before.
pub(crate) async fn cancel<T>(task: JoinHandle<T>) -> Option<T> {
    some_time().await;
    task.abort();
    task.await.ok()
}

/// Whether anything happened in any schedule: what never happens is not tested.
#[derive(Debug, Default)]
pub(crate) struct Seen(AtomicBool);

impl Seen {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn record(&self, has_happened: bool) {
        self.0.fetch_or(has_happened, Ordering::SeqCst);
    }

    /// To be called after all schedules.
    pub(crate) fn assert(&self, what: &str) {
        let is_replay = env::var_os("TIDEGATE_SCHEDULE").is_some();
        assert!(is_replay || self.0.load(Ordering::SeqCst), "in no schedule: {what}");
    }
}
