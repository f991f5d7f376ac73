//! Measures how the cost of a decision grows with the number of subjects, limits, connections,
//! threads and charges.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use std::{fs, thread};

use clap::ValueEnum;
use tidegate_memory::{Call, Charge, MemoryStore, Policy, Store};
use tidegate_redis::RedisStore;

use crate::harness::{Load, Samples, Server, Thousandths, drive, measure, rounds, thread_time};
use crate::{Outcome, at_least_one, block_on, memory, server};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    rounds: usize,
    /// Milliseconds of each measurement of a server.
    #[arg(long, default_value_t = 500, value_parser = at_least_one)]
    millis: usize,
    /// Number of charges in each measurement of the memory store. Redis gets a fiftieth of them.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    decisions: u64,
    /// Measure 10,000,000 subjects too. This takes about 1 GiB of memory.
    #[arg(long)]
    large: bool,
    /// Thing whose number grows. The option can be repeated. Default: all things.
    #[arg(long = "only", value_enum)]
    axes: Vec<Axis>,
    /// Maximum number of subjects, limits, overrides and connections to measure.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    max: u64,
}

/// A thing whose number grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Axis {
    Subjects,
    Limits,
    Overrides,
    OverridesUsed,
    Connections,
    Threads,
    ThreadsApart,
    Workers,
    Charges,
    RedisCharges,
    PoolMembers,
}

impl Options {
    fn axes(&self) -> impl Iterator<Item = Axis> + '_ {
        let all = Axis::value_variants().iter().copied();
        all.filter(|axis| self.axes.is_empty() || self.axes.contains(axis))
    }
}

struct Sample {
    /// The CPU time in nanoseconds.
    cpu: u64,
    /// Bytes per subject, or bytes of the server for limits, overrides and connections. For
    /// threads, the number of waits of a thread per million checks.
    other: Option<u64>,
}

impl Axis {
    fn title(self) -> &'static str {
        match self {
            Self::Subjects => "subjects in the memory store; CPU of a check",
            Self::Limits => "limits of the server; its CPU per gRPC call",
            Self::Overrides => "overrides for other subjects; CPU of the server per gRPC call",
            Self::OverridesUsed => "overrides, also for the subjects of the calls; the same",
            Self::Connections => "connections to the server; its CPU per RESP command",
            Self::Threads => {
                "threads that check one subject of the memory store; CPU of a check, and waits for a lock per \
                 million checks"
            }
            Self::ThreadsApart => "threads that check 1,000 subjects; the same",
            Self::Workers => "worker threads of the server, one subject; its CPU per RESP command",
            Self::Charges => "charges per call on the memory store; CPU per charge",
            Self::RedisCharges => "charges per call on Redis; its CPU per charge",
            Self::PoolMembers => {
                "members of a fair pool on Redis; its CPU per call (0: fixed windows of 1,000 subjects)"
            }
        }
    }

    fn numbers(self, options: &Options) -> Vec<u64> {
        let all: &[u64] = match self {
            Self::Subjects => &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
            Self::Overrides | Self::OverridesUsed => &[0, 1_000, 1_000_000],
            Self::Limits | Self::Connections => &[1, 10, 100, 1_000, 10_000],
            Self::Threads | Self::ThreadsApart | Self::Workers => &[1, 2, 4, 8],
            Self::Charges | Self::RedisCharges => &[1, 2, 4, 8, 16, 32, 64],
            Self::PoolMembers => &[0, 1, 10, 100, 500, 999],
        };
        let is_wanted = |number: u64| match self {
            Self::Subjects if number == 10_000_000 => options.large,
            _ => true,
        };
        all.iter().copied().filter(|number| *number <= options.max && is_wanted(*number)).collect()
    }

    fn measure(self, number: u64, options: &Options) -> Outcome<Sample> {
        let count = usize::try_from(number)?;
        let duration = Duration::from_millis(options.millis as u64);
        let server_sample =
            |grown: server::Grown| Sample { cpu: grown.cpu, other: Some(grown.bytes) };
        match self {
            Self::Subjects => {
                let (cpu, bytes) = memory::scale::known(number, options.decisions)?;
                Ok(Sample { cpu, other: Some(bytes) })
            }
            Self::Limits => server::limits(count, duration).map(server_sample),
            Self::Overrides => server::overrides(count, false, duration).map(server_sample),
            Self::OverridesUsed => server::overrides(count, true, duration).map(server_sample),
            Self::Connections => server::connections(count, duration).map(server_sample),
            Self::Threads => contended(count, 1, options.decisions),
            Self::ThreadsApart => contended(count, SUBJECTS, options.decisions),
            Self::Workers => server::workers(count, duration).map(server_sample),
            Self::Charges => {
                Ok(Sample { cpu: nanos_per_charge(count, options.decisions)?, other: None })
            }
            Self::RedisCharges => {
                let cpu =
                    block_on(redis_nanos_per_charge(Charges::new(count)?, options.decisions))?;
                Ok(Sample { cpu, other: None })
            }
            Self::PoolMembers => {
                let cpu =
                    block_on(redis_nanos_per_charge(Charges::for_pool(count)?, options.decisions))?;
                Ok(Sample { cpu, other: None })
            }
        }
    }
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    let mut samples = Samples::new();
    let points = || {
        options
            .axes()
            .flat_map(|axis| axis.numbers(options).into_iter().map(move |number| (axis, number)))
    };
    for _ in rounds(options.rounds) {
        for (axis, number) in points() {
            let sample = axis.measure(number, options).map_err(|error| error.to_string());
            samples.add((axis, number), sample);
        }
    }
    println!(
        "CPU is user and system time. The ratio is to the first row of the same kind. The bytes of limits, \
         overrides and connections are the bytes of the server beyond its bytes in the first row, per limit, override or connection.\n\n\
         | number | of | CPU, ns | ratio | bytes or waits each |\n|--:|---|--:|--:|--:|"
    );
    for axis in options.axes() {
        let mut first = None;
        for number in axis.numbers(options) {
            let title = axis.title();
            let rounds = samples.get(&(axis, number))?;
            if let Some(reason) = rounds.iter().find_map(|sample| sample.as_ref().err()) {
                println!("| {number} | {title} | not measured: {reason} | | |");
                continue;
            }
            let median = |figure: fn(&Sample) -> u64| {
                samples.median(&(axis, number), |sample| sample.as_ref().map_or(0, figure))
            };
            let cpu = median(|sample| sample.cpu)?;
            let other = median(|sample| sample.other.unwrap_or_default())?;
            let (first_number, first_cpu, first_other) = *first.get_or_insert((number, cpu, other));
            let each = match axis {
                Axis::Subjects | Axis::Threads | Axis::ThreadsApart => other.to_string(),
                Axis::Limits | Axis::Overrides | Axis::OverridesUsed | Axis::Connections => {
                    let each = other.saturating_sub(first_other).checked_div(number - first_number);
                    each.map_or_else(String::new, |each| each.to_string())
                }
                Axis::Workers | Axis::Charges | Axis::RedisCharges | Axis::PoolMembers => {
                    String::new()
                }
            };
            let ratio = Thousandths::ratio(cpu, first_cpu).ok_or("a decision took no time")?;
            println!("| {number} | {title} | {cpu} | {ratio} | {each} |");
        }
    }
    Ok(())
}

/// Measures checks by several threads on all cores. Each thread uses the subjects in turn, and
/// begins with another subject.
fn contended(threads: usize, subjects: usize, decisions: u64) -> Outcome<Sample> {
    let policy: Policy = "token-bucket 1/1m burst 30000000".parse()?;
    server::use_all_cores();
    let (store, start) = (MemoryStore::new(), Barrier::new(threads));
    let checks = decisions.div_ceil(u64::try_from(threads)?);
    let names: Vec<_> = (0..subjects).map(|number| format!("user-{number:06}")).collect();
    let charges: Vec<_> = names.iter().map(|name| [Charge::new(&policy, name)]).collect();
    let run = |thread: usize| -> Outcome<(Duration, u64)> {
        let first = thread * subjects / threads;
        let mut charges = charges.iter().cycle().skip(first);
        start.wait();
        let before = (thread_time(), waits_of_thread()?);
        for _ in 0..checks {
            let charge = charges.next().ok_or("no subject")?;
            let _ = black_box(store.decide_now(&Call::acquire(charge))?);
        }
        Ok((thread_time().saturating_sub(before.0), waits_of_thread()? - before.1))
    };
    let (mut took, mut waits) = (0, 0);
    thread::scope(|scope| -> Outcome<()> {
        let runs: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        for run in runs {
            let (time, waited) = run.join().map_err(|_| "a thread panicked")??;
            took += time.as_nanos();
            waits += waited;
        }
        Ok(())
    })?;
    let checks = checks * u64::try_from(threads)?;
    Ok(Sample { cpu: u64::try_from(took)? / checks, other: Some(waits * 1_000_000 / checks) })
}

/// Returns how many times this thread waited, for example for a lock.
fn waits_of_thread() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/thread-self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.ok_or("the number of waits is unknown")?.trim().parse()?)
}

/// The number of subjects. Calls with several charges use them in turn.
const SUBJECTS: usize = 1_000;

const CALLERS: usize = 64;

struct Charges {
    policies: Vec<Policy>,
    subjects: Vec<String>,
}

impl Charges {
    fn new(count: usize) -> Outcome<Self> {
        let policy = |number| format!("p{number:02}: token-bucket 1/1m burst 30000000").parse();
        let policies = (0..count).map(policy).collect::<Result<_, _>>()?;
        Ok(Self { policies, subjects: subjects(SUBJECTS) })
    }

    /// Creates charges of the members of one fair pool. If `members` is 0, creates charges of fixed
    /// windows.
    fn for_pool(members: usize) -> Outcome<Self> {
        let (policy, count) = match members {
            0 => ("p: fixed-window 30000000/24h", SUBJECTS),
            members => ("p: fair-pool 30000000/24h", members),
        };
        Ok(Self { policies: vec![policy.parse()?], subjects: subjects(count) })
    }

    fn charges<'c>(&'c self, subject: &'c str) -> Vec<Charge<'c>> {
        self.policies.iter().map(|policy| Charge::new(policy, subject)).collect()
    }
}

/// Returns the server's CPU time per charge for calls with `count` charges on Redis, in
/// nanoseconds.
async fn redis_nanos_per_charge(charges: Charges, decisions: u64) -> Outcome<u64> {
    let server = Server::start().await?;
    let count = charges.policies.len();
    let load = Arc::new(RedisCharges { store: server.store.clone(), charges });
    drive(&load, CALLERS, 0..SUBJECTS).await?;
    let calls = (usize::try_from(decisions)? / 50).div_ceil(count);
    let (cost, allowed) = measure(&server, &load, CALLERS, 0..calls, count).await?;
    if allowed != calls {
        return Err(format!("{allowed} of {calls} calls were allowed").into());
    }
    Ok(cost.cpu)
}

fn subjects(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("user-{number:06}")).collect()
}

struct RedisCharges {
    store: RedisStore,
    charges: Charges,
}

impl Load for RedisCharges {
    async fn call(&self, number: usize) -> Outcome<usize> {
        let subjects = &self.charges.subjects;
        let charges = self.charges.charges(&subjects[number % subjects.len()]);
        let decision = self.store.decide(Call::acquire(&charges)).await?;
        Ok(usize::from(decision.is_allowed()))
    }
}

/// Returns the time per charge for calls with `count` charges on the memory store, in nanoseconds.
fn nanos_per_charge(count: usize, decisions: u64) -> Outcome<u64> {
    let all = Charges::new(count)?;
    let calls: Vec<_> = all.subjects.iter().map(|subject| all.charges(subject)).collect();
    let store = MemoryStore::new();
    let decide = |charges: &Vec<_>| store.decide_now(&Call::acquire(charges));
    for charges in &calls {
        if !decide(charges)?.is_allowed() {
            return Err(format!("a call of {count} charges was refused").into());
        }
    }
    let charges_per_call = u64::try_from(count)?;
    let total = decisions.div_ceil(charges_per_call);
    let started = thread_time();
    for charges in calls.iter().cycle().take(usize::try_from(total)?) {
        let _ = black_box(decide(charges)?);
    }
    let took = thread_time().saturating_sub(started);
    Ok(u64::try_from(took.as_nanos())? / (total * charges_per_call))
}
