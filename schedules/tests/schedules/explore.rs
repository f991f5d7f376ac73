//! Runs a test scenario in many interleavings of its tasks.

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

/// The number of schedules of each kind, if `TIDEGATE_SCHEDULES` is not set.
const SCHEDULES: usize = 1_000;

/// The number of schedules that run twice, to check that both runs are equal.
const REPEATED: usize = 10;

/// The depth of the PCT scheduler: about the number of steps whose order must be right to cause a
/// failure.
const DEPTH: usize = 3;

/// Runs the scenario in many schedules. In each of them, the scenario must end, and no assertion
/// may fail.
///
/// In half of the schedules, a random task executes each step. In the other half (PCT), each task
/// has a priority that changes at a few random steps, so that a task can also wait for a long time
/// while other tasks continue.
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
    // In this run, both executions of a schedule must be equal, because otherwise a failed schedule
    // could not be repeated.
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

/// A guard that prints the command that repeats a failed schedule.
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

/// A scheduler that runs the task of the timers only when no other task can run.
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
        // The task of the timers is the first task that the main task (number 0) spawns.
        let timers = TaskId::from(1);
        let others: Vec<_> = runnable.iter().copied().filter(|task| task.id() != timers).collect();
        let runnable = if others.is_empty() { runnable } else { &others };
        self.0.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Waits while other tasks execute some steps. The schedule chooses their number.
pub(crate) async fn some_time() {
    for _ in 0..thread_rng().gen_range(0..40) {
        yield_now().await;
    }
}

/// Waits until no other task can run.
pub(crate) async fn idle() {
    scheduled::sleep(Duration::from_micros(1)).await;
}

/// Returns the outputs of tasks. No task may be cancelled.
pub(crate) async fn join<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let mut outputs = vec![];
    for task in tasks {
        outputs.push(task.await.expect("no task is cancelled"));
    }
    outputs
}

/// Cancels a task after a random number of steps. Returns the output of the task if it ended
/// before.
pub(crate) async fn cancel<T>(task: JoinHandle<T>) -> Option<T> {
    some_time().await;
    task.abort();
    task.await.ok()
}

/// Whether an event happened in at least one schedule. A test fails if its event never happens,
/// because it then tests nothing.
#[derive(Debug, Default)]
pub(crate) struct Seen(AtomicBool);

impl Seen {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn record(&self, has_happened: bool) {
        self.0.fetch_or(has_happened, Ordering::SeqCst);
    }

    /// Checks, after all schedules, that the event happened in at least one of them.
    pub(crate) fn assert(&self, what: &str) {
        let is_replay = env::var_os("TIDEGATE_SCHEDULE").is_some();
        assert!(is_replay || self.0.load(Ordering::SeqCst), "in no schedule: {what}");
    }
}
