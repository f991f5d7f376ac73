//! Measures a load on one connection, and its cost for the server and the client.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_redis::Policy;
use tokio::task::LocalSet;

use super::Options;
use super::way::{Caller, Way};
use crate::Outcome;
use crate::harness::{Server, nanos, percentile, thread_time};
use crate::random::{random, zipf};

const MANY: u64 = 100_000;

/// A caller measures the latency of one call in `STRETCH`, and then yields.
const STRETCH: usize = 16;

/// The subjects of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Load {
    /// One subject.
    Hot,
    /// Subjects by Zipf's law.
    Zipf,
    /// Subjects in turn.
    Cold,
    /// Refused subjects, which the calls use in turn.
    Denied,
}

pub(crate) const LOADS: [Load; 4] = [Load::Hot, Load::Zipf, Load::Cold, Load::Denied];

impl Load {
    pub(crate) fn ways(self) -> &'static [Way] {
        use Way::{Batch, Coalesced, DenyCache, Incr, Leased, LeasedCoalesced, Nothing, Single};
        match self {
            Self::Hot | Self::Zipf | Self::Cold => {
                &[Nothing, Incr, Single, Batch, Coalesced, Leased, LeasedCoalesced]
            }
            Self::Denied => &[Nothing, Incr, Single, Batch, Coalesced, DenyCache],
        }
    }

    fn policy(self, way: Way) -> Outcome<Policy> {
        let rule = match self {
            Self::Hot => "100/1m burst 1000000000",
            // The bucket refills so slowly that no state recovers and expires. So the comparison
            // with `INCR`, whose keys do not expire, is fair.
            Self::Zipf | Self::Cold => "400/24h burst 10000000",
            Self::Denied => "1/24h burst 1",
        };
        Ok(format!("{self:?}-{way:?}: token-bucket {rule}").parse()?)
    }

    fn subjects(self) -> u64 {
        match self {
            Self::Hot => 1,
            Self::Zipf | Self::Cold => MANY,
            Self::Denied => 1_000,
        }
    }

    fn subject(self, number: u64) -> u64 {
        match self {
            Self::Zipf => zipf(random(number), MANY),
            Self::Hot | Self::Cold | Self::Denied => number % self.subjects(),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hot => "One hot subject",
            Self::Zipf => "100,000 subjects by Zipf's law",
            Self::Cold => "100,000 subjects in turn",
            Self::Denied => "1,000 subjects that are refused, in turn",
        })
    }
}

/// One measurement. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) per_second: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    /// The CPU time of the server for each decision.
    pub(crate) server: u64,
    /// The CPU time of the client for each decision, including the time that generates the load.
    pub(crate) client: u64,
    /// The decisions that were made without the server, in thousandths of all decisions.
    pub(crate) local: u64,
}

pub(crate) async fn sample(
    server: &Server,
    load: Load,
    way: Way,
    callers: usize,
    options: &Options,
) -> Outcome<Sample> {
    let subjects = (0..load.subjects()).map(|number| format!("user-{number:06}")).collect();
    let caller = Caller::new(way, &server.store, &server.connection, options.span());
    // A task with batches has many decisions in flight, so it replaces several single callers.
    let tasks = callers.div_ceil(way.decisions());
    let work = Rc::new(Work {
        load,
        way,
        policy: load.policy(way)?,
        caller,
        subjects,
        next: Cell::new(0),
    });
    drive(&work, tasks, options.duration() / 2).await?;

    let (local_before, client_before) = (work.caller.local(), thread_time());
    let (run, server_cpu) = server.cpu_of(drive(&work, tasks, options.duration())).await?;
    let client = thread_time().saturating_sub(client_before);
    let local = work.caller.local() - local_before;
    work.caller.close().await;

    let Run { took, decisions, mut latencies } = run;
    latencies.sort_unstable();
    let decisions = decisions.max(1);
    Ok(Sample {
        per_second: decisions.saturating_mul(1_000_000_000) / nanos(took)?.max(1),
        p50: nanos(percentile(&latencies, 50))?,
        p99: nanos(percentile(&latencies, 99))?,
        server: nanos(server_cpu)? / decisions,
        client: nanos(client)? / decisions,
        local: local * 1_000 / decisions,
    })
}

struct Work {
    load: Load,
    way: Way,
    policy: Policy,
    caller: Caller,
    subjects: Vec<String>,
    next: Cell<u64>,
}

struct Run {
    took: Duration,
    decisions: u64,
    latencies: Vec<Duration>,
}

async fn drive(work: &Rc<Work>, tasks: usize, duration: Duration) -> Outcome<Run> {
    let started = Instant::now();
    let all = LocalSet::new();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| all.spawn_local(call(Rc::clone(work), task, started + duration)))
        .collect();
    all.await;
    let took = started.elapsed();
    let mut run = Run { took, decisions: 0, latencies: vec![] };
    for task in tasks {
        let (decisions, latencies) = task.await??;
        run.decisions += decisions;
        run.latencies.extend(latencies);
    }
    Ok(run)
}

/// Makes the calls of one caller. Returns the number of decisions, and latencies.
async fn call(work: Rc<Work>, task: usize, until: Instant) -> Outcome<(u64, Vec<Duration>)> {
    let Work { load, way, policy, caller, subjects, next } = &*work;
    let (mut decisions, mut allowed, mut latencies) = (0, 0, vec![]);
    let mut asked = Vec::with_capacity(way.decisions());
    for number in task.. {
        asked.clear();
        for _ in 0..way.decisions() {
            let subject = load.subject(next.replace(next.get() + 1));
            asked.extend(subjects.get(usize::try_from(subject)?).map(String::as_str));
        }
        if number % STRETCH == 0 {
            let started = Instant::now();
            if started >= until {
                break;
            }
            allowed += caller.call(policy, &asked).await?;
            latencies.push(started.elapsed());
            tokio::task::yield_now().await;
        } else {
            allowed += caller.call(policy, &asked).await?;
        }
        decisions += asked.len();
    }
    // The table says whether decisions allow or deny, so other decisions are an error.
    let is_expected = match load {
        _ if matches!(way, Way::Nothing | Way::Incr) => true,
        Load::Denied => allowed <= subjects.len(),
        Load::Hot | Load::Zipf | Load::Cold => allowed == decisions,
    };
    if !is_expected {
        return Err(format!("{load}, {way}: {allowed} of {decisions} were allowed").into());
    }
    Ok((u64::try_from(decisions)?, latencies))
}
