//! Measures one contender at one workload.

use std::slice;
use std::sync::Barrier;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::contender::{Contender, Limits};
use super::subjects::Workload;
use crate::Outcome;
use crate::harness::{middle, thread_time};

/// The time after which a run ends, even if it has not made all its calls. The bound is necessary,
/// because some contenders take a hundred times as long as others.
const LONGEST_RUN: Duration = Duration::from_secs(1);

/// The number of calls between two readings of the clock. The subjects of these calls fit into a
/// fast cache of the CPU, as in a program that has just read a request.
const STRETCH: usize = 2_000;

/// Returns the time of a check in tenths of a nanosecond. The threads share the calls.
///
/// With one thread, the function measures CPU time, so that other work on the machine does not
/// count. With several threads, it measures elapsed time, because CPU time does not include the
/// time in which a thread waits for another thread.
pub(crate) fn time<K: Clone + Sync>(
    limits: &dyn Limits<K>,
    calls: &[K],
    threads: usize,
) -> Outcome<u64> {
    let runs = if threads == 1 {
        vec![run(limits, calls, thread_time)]
    } else {
        run_all(limits, calls, threads)
    };
    let (mut took, mut done) = (0, 0);
    for (time, calls) in runs {
        took += time.as_nanos();
        done += calls as u128;
    }
    Ok(u64::try_from(took.saturating_mul(10) / done.max(1))?)
}

/// Makes calls. Returns their time by the clock `now`, and their number. Before each stretch of
/// calls, the function copies their subjects, so that the subjects are in the CPU's cache. The time
/// does not include the copying.
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
                    run(limits, calls, elapsed_time)
                })
            })
            .collect();
        runs.into_iter().filter_map(|run| run.join().ok()).collect()
    })
}

fn elapsed_time() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default()
}

/// The memory of subjects, and the longest check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) bytes_per_subject: u64,
    /// The number of allocations in a thousand checks of known subjects.
    pub(crate) allocations: u64,
    pub(crate) longest: Duration,
}

/// Measures a contender with new subjects, and then again with the same subjects.
pub(crate) fn footprint<K>(contender: &Contender<K>, insert: &Workload<K>) -> Outcome<Footprint> {
    let subjects = &insert.calls;
    let mut kept = Err("the limiter was not built".into());
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

/// The number of runs. The result is the median of their longest checks, because a pause of the
/// machine makes a single check long.
const LONGEST_OF: usize = 3;

fn longest_of<K>(limits: &dyn Limits<K>, subjects: &[K]) -> Duration {
    let mut longest = Duration::ZERO;
    for subject in subjects {
        let started = thread_time();
        limits.pass(slice::from_ref(subject));
        longest = longest.max(thread_time().saturating_sub(started));
    }
    longest
}
