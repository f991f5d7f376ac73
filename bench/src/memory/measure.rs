//! One measurement: one contender at one workload.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::contender::{Contender, Limits};
use super::subjects::Workload;
use crate::Outcome;

/// What one run gave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Of a check as its caller sees it, in tenths of a nanosecond.
    pub(crate) tenths: u64,
}

/// The time of checks in `threads` threads at once, each with its share of the calls.
///
/// One thread alone is timed by what it ran, so that nothing else on the machine counts; several by
/// the clock on the wall, as waiting for each other is what they are measured for.
pub(crate) fn time<K: Sync>(
    contender: &Contender<K>,
    workload: &Workload<K>,
    threads: usize,
) -> Outcome<Sample> {
    let limits = (contender.build)(workload.setup)?;
    limits.pass(&workload.known);
    let calls = workload.calls.len() / threads;
    let took = if threads == 1 {
        let started = ran();
        limits.pass(&workload.calls);
        ran().saturating_sub(started)
    } else {
        time_all(&*limits, &workload.calls[..calls * threads], threads)?
    };
    let tenths = took.as_nanos().saturating_mul(10) / (calls as u128).max(1);
    Ok(Sample { tenths: u64::try_from(tenths)? })
}

fn time_all<K: Sync>(limits: &dyn Limits<K>, calls: &[K], threads: usize) -> Outcome<Duration> {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let share = calls.chunks(calls.len() / threads);
        let runs: Vec<_> = share
            .map(|calls| {
                scope.spawn(|| {
                    start.wait();
                    let started = Instant::now();
                    limits.pass(calls);
                    started.elapsed()
                })
            })
            .collect();
        let took: Vec<_> = runs.into_iter().filter_map(|run| run.join().ok()).collect();
        took.into_iter().max().ok_or_else(|| "no thread came back".into())
    })
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
    let (mut kept, mut longest) = (Err("it was not built".into()), Duration::ZERO);
    let inserted = allocation_counter::measure(|| {
        kept = (contender.build)(insert.setup);
        if let Ok(limits) = &kept {
            longest = limits.longest(subjects, ran);
        }
    });
    let limits = kept?;
    let some = &subjects[..subjects.len().min(100_000)];
    let again = allocation_counter::measure(|| {
        limits.pass(some);
    });
    let bytes = u64::try_from(inserted.bytes_current).unwrap_or(0);
    Ok(Footprint {
        bytes_per_subject: bytes / (subjects.len() as u64).max(1),
        allocations: again.count_total * 1_000 / (some.len() as u64).max(1),
        longest,
    })
}

/// How long this thread has been running.
pub(crate) fn ran() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
