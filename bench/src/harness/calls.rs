//! Callers that share one connection.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::figures::{nanos, percentile};
use super::server::Server;
use crate::Outcome;

/// Calls that are numbered.
pub(crate) trait Load: Send + Sync + 'static {
    /// Makes the call with this number. Returns the number of decisions that allow.
    fn call(&self, number: usize) -> impl Future<Output = Outcome<usize>> + Send;
}

#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) took: Duration,
    /// The number of decisions that allow.
    pub(crate) allowed: usize,
    pub(crate) latencies: Vec<Duration>,
}

/// Makes the calls with these numbers from several callers. Each caller waits for its answer before
/// its next call.
pub(crate) async fn drive<L: Load>(
    load: &Arc<L>,
    callers: usize,
    numbers: Range<usize>,
) -> Outcome<Run> {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (load, next) = (Arc::clone(load), Arc::clone(&next));
        tasks.spawn(async move {
            let mut run = Run::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return Outcome::Ok(run);
                }
                let called = Instant::now();
                run.allowed += load.call(number).await?;
                run.latencies.push(called.elapsed());
            }
        });
    }
    let mut all = Run::default();
    while let Some(run) = tasks.join_next().await {
        let run = run??;
        all.allowed += run.allowed;
        all.latencies.extend(run.latencies);
    }
    all.took = started.elapsed();
    all.latencies.sort_unstable();
    Ok(all)
}

/// The cost of decisions, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) per_second: u64,
    /// The CPU time of the server for each decision.
    pub(crate) cpu: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
}

/// Makes calls with `decisions` decisions each. Returns their cost, and the number of decisions
/// that allow.
pub(crate) async fn measure<L: Load>(
    server: &Server,
    load: &Arc<L>,
    callers: usize,
    numbers: Range<usize>,
    decisions: usize,
) -> Outcome<(Cost, usize)> {
    let decisions = u64::try_from(numbers.len() * decisions)?.max(1);
    let (run, cpu) = server.cpu_of(drive(load, callers, numbers)).await?;
    let cost = Cost {
        per_second: decisions.saturating_mul(1_000_000_000) / nanos(run.took)?.max(1),
        cpu: nanos(cpu)? / decisions,
        p50: nanos(percentile(&run.latencies, 50))?,
        p99: nanos(percentile(&run.latencies, 99))?,
    };
    Ok((cost, run.allowed))
}
