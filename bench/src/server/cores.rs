//! Measures the decisions per second of tidegate-server with one and with more worker threads.

use std::fmt::Write;
use std::thread;

use super::call::Call;
use super::client::{Client, Run, Until};
use super::exchange::exchange;
use super::load::{Load, Shape};
use super::process::{Cores, Process, cpu_time};
use super::{LIMITS, Options};
use crate::Outcome;
use crate::harness::{Samples, Thousandths, nanos, rounds};

/// The numbers of worker threads.
const WORKERS: [usize; 4] = [1, 2, 4, 8];

/// The loads: pipelines of commands, and gRPC calls.
const LOADS: [(Call, Shape); 2] =
    [(Call::Throttle, Shape::Pipelined), (Call::ShouldRateLimit, Shape::Streams)];

/// One measurement. The CPU time is in nanoseconds per decision.
struct Sample {
    per_second: u64,
    cpu: u64,
}

/// Measures each number of worker threads for which the machine has enough cores. Returns the
/// table.
pub(super) fn table(processors: usize, options: &Options) -> Outcome<String> {
    // At least one core is for the client.
    let max = processors.saturating_sub(1).max(1);
    let counts = WORKERS.into_iter().filter(|workers| *workers <= max);
    let loads = || LOADS.into_iter().filter(|(call, _)| options.has(call.protocol()));
    let mut samples = Samples::new();
    for _ in rounds(options.rounds) {
        for workers in counts.clone() {
            let cores = Cores::split(workers, processors);
            let process = Process::tidegate(cores, "memory", LIMITS)?;
            let clients = workers.min(processors - workers.min(processors)).max(1);
            for (call, shape) in loads() {
                let key = (call.protocol(), workers);
                samples.add(key, sample(&process, call, shape, clients, options)?);
            }
        }
    }
    let mut table = format!(
        "\n## Worker threads\n\n\
         tidegate-server on its memory, many subjects. Each worker thread has its own core. The client runs on the \
         other cores of {processors}, with at most one thread per worker thread. Ratios are to one worker thread.\n\n\
         | load | worker threads | decisions/s | per core | ratio | server's CPU, µs | ratio |\n\
         |---|--:|--:|--:|--:|--:|--:|\n"
    );
    for (call, _) in loads() {
        let one = (call.protocol(), 1);
        for workers in counts.clone() {
            let key = (call.protocol(), workers);
            let per_core = |sample: &Sample| sample.per_second / workers as u64;
            let one_per_second = samples.median(&one, |sample| sample.per_second)?;
            let ratio = Thousandths::ratio(samples.median(&key, per_core)?, one_per_second);
            writeln!(
                table,
                "| {} | {workers} | {} | {} | {} | {} | {} |",
                call.protocol(),
                samples.median(&key, |sample| sample.per_second)?,
                samples.median(&key, per_core)?,
                ratio.ok_or("nothing was decided")?,
                Thousandths(samples.median(&key, |sample| sample.cpu)?),
                samples.ratio((&key, &one), |sample| sample.cpu)?,
            )?;
        }
    }
    Ok(table)
}

fn sample(
    process: &Process,
    call: Call,
    shape: Shape,
    clients: usize,
    options: &Options,
) -> Outcome<Sample> {
    let send = |until| send(process, call, shape, clients, until, options);
    send(Until::Time(options.duration() / 2))?;
    let before = cpu_time(process.pid())?;
    let runs = send(Until::Time(options.duration()))?;
    let cpu = cpu_time(process.pid())?.saturating_sub(before);
    let requests: u64 = runs.iter().map(|run| run.requests).sum();
    let took = runs.iter().map(|run| run.took).max().unwrap_or_default();
    Ok(Sample {
        per_second: requests * 1_000_000_000 / nanos(took)?.max(1),
        cpu: nanos(cpu)? / requests.max(1),
    })
}

/// Sends requests from several threads, each with its own connections.
fn send(
    process: &Process,
    call: Call,
    shape: Shape,
    clients: usize,
    until: Until,
    options: &Options,
) -> Outcome<Vec<Run>> {
    let address = process.address(call.protocol());
    let authority = address.to_string();
    let subjects = Load::Many.subjects(options);
    let requests: Vec<_> =
        subjects.iter().map(|subject| call.request(Load::Many, subject, &authority)).collect();
    let run = || -> Outcome<Run> {
        let exchange = || exchange(call, &authority);
        let mut client = Client::connect(address, shape.connections(), exchange)?;
        client.run(&requests, shape.pace(options), until)
    };
    thread::scope(|scope| {
        let runs: Vec<_> = (0..clients).map(|_| scope.spawn(run)).collect();
        let join =
            |run: thread::ScopedJoinHandle<'_, _>| run.join().map_err(|_| "a client panicked")?;
        runs.into_iter().map(join).collect()
    })
}
