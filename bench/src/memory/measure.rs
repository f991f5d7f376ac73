//! One measurement: one contender at one workload.

use std::slice;
use std::sync::Barrier;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::contender::{Contender, Limits};
use super::subjects::Workload;
use crate::Outcome;
use crate::figures::middle;

/// What one run gave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Of a check as its caller sees it, in tenths of a nanosecond.
    pub(crate) tenths: u64,
}

/// A run ends here, however many calls there were to be: some peers take a hundred times as long as
/// others, and there are many runs.
const LONGEST_RUN: Duration = Duration::from_secs(1);

/// Calls between two looks at the time: few enough that all of their subjects are in a fast cache, as
/// that of a request is which was just read.
const STRETCH: usize = 2_000;

/// The time of checks in `threads` threads at once, each with its share of the calls.
///
/// One thread alone is timed by what it ran, so that nothing else on the machine counts; several by
/// the clock on the wall, as waiting for each other is what they are measured for.
pub(crate) fn time<K: Clone + Sync>(
    limits: &dyn Limits<K>,
    calls: &[K],
    threads: usize,
) -> Outcome<Sample> {
    let runs =
        if threads == 1 { vec![run(limits, calls, ran)] } else { run_all(limits, calls, threads) };
    let (mut took, mut done) = (0, 0);
    for (time, calls) in runs {
        took += time.as_nanos();
        done += calls as u128;
    }
    Ok(Sample { tenths: u64::try_from(took.saturating_mul(10) / done.max(1))? })
}

/// How long it took, by `now`, and how many calls there were. That subjects come from wherever this
/// program keeps them is not measured: in no other would they lie a hundred thousand calls ahead.
fn run<K: Clone>(limits: &dyn Limits<K>, calls: &[K], now: fn() -> Duration) -> (Duration, usize) {
    let (mut at_hand, mut took, mut done) = (Vec::new(), Duration::ZERO, 0);
    for calls in calls.chunks(STRETCH) {
        calls.clone_into(&mut at_hand);
        let started = now();
        limits.pass(&at_hand);
        took += now().saturating_sub(started);
        done += calls.len();
        if took > LONGEST_RUN {
            break;
        }
    }
    (took, done)
}

fn run_all<K: Clone + Sync>(
    limits: &dyn Limits<K>,
    calls: &[K],
    threads: usize,
) -> Vec<(Duration, usize)> {
    let shares: Vec<_> = calls.chunks(calls.len().div_ceil(threads).max(1)).collect();
    let start = Barrier::new(shares.len());
    std::thread::scope(|scope| {
        let runs: Vec<_> = (shares.into_iter())
            .map(|calls| {
                scope.spawn(|| {
                    start.wait();
                    run(limits, calls, on_the_wall)
                })
            })
            .collect();
        runs.into_iter().filter_map(|run| run.join().ok()).collect()
    })
}

fn on_the_wall() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default()
}

/// What subjects take, and the longest that one check makes its caller wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) bytes_per_subject: u64,
    /// Allocations in a thousand checks of known subjects.
    pub(crate) allocations: u64,
    pub(crate) longest: Duration,
}

/// `insert` brings subjects that are new, and then again the same.
pub(crate) fn footprint<K>(contender: &Contender<K>, insert: &Workload<K>) -> Outcome<Footprint> {
    let subjects = &insert.calls;
    let mut kept = Err("it was not built".into());
    let inserted = allocation_counter::measure(|| {
        kept = (contender.build)(insert.setup);
        if let Ok(limits) = &kept {
            limits.pass(subjects);
        }
    });
    let limits = kept?;
    let some = &subjects[..subjects.len().min(100_000)];
    let again = allocation_counter::measure(|| {
        limits.pass(some);
    });
    drop(limits);
    let longest =
        (0..LONGEST_OF).map(|_| Ok(longest_of(&*(contender.build)(insert.setup)?, subjects)));
    let bytes = u64::try_from(inserted.bytes_current).unwrap_or(0);
    Ok(Footprint {
        bytes_per_subject: bytes / (subjects.len() as u64).max(1),
        allocations: again.count_total * 1_000 / (some.len() as u64).max(1),
        longest: middle(longest.collect::<Outcome<_>>()?),
    })
}

/// The longest check is the median of so many runs, as a host that takes the processor away for a moment
/// makes any of them long.
const LONGEST_OF: usize = 3;

/// The longest of all checks of these subjects.
fn longest_of<K>(limits: &dyn Limits<K>, subjects: &[K]) -> Duration {
    let mut longest = Duration::ZERO;
    for subject in subjects {
        let started = ran();
        limits.pass(slice::from_ref(subject));
        longest = longest.max(ran().saturating_sub(started));
    }
    longest
}

/// How long this thread has been running.
pub(crate) fn ran() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
