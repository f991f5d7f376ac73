//! Compares tidegate-server, throttlecrab-server and redis-server, over RESP, HTTP and gRPC.

mod call;
mod client;
mod compare;
mod cores;
mod exchange;
mod flood;
mod growth;
mod grpc;
mod http;
mod load;
mod memory;
mod process;
mod report;
mod resp;
mod slots;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_test_servers::Redis;

use crate::harness::{Samples, nanos, percentile, rounds};
use crate::{Outcome, at_least_one, block_on};
use call::{Contender, Peer, Protocol};
use client::{Client, Pace, Until};
pub(crate) use compare::compare;
use exchange::exchange;
pub(crate) use flood::{FloodOptions, run as flood};
pub(crate) use growth::{Grown, connections, limits, overrides, workers};
use load::{Load, SCENARIOS, Scenario};
pub(crate) use process::use_all_cores;
use process::{Cores, Process, cpu_time, throttlecrab_server};
pub(crate) use slots::slots;

/// The directory of the limits for calls that do not contain their limit.
const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/limits");

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Milliseconds of each measurement. Before it, the same requests are sent for half of that
    /// time.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    millis: usize,
    /// Protocol to measure. The option can be repeated. Default: all protocols.
    #[arg(long = "protocol", value_enum)]
    protocols: Vec<Protocol>,
    /// Number of subjects of the loads with many subjects.
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one)]
    subjects: usize,
    /// Number of subjects that are stored when memory is measured.
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_one)]
    stored: usize,
    /// Calls per second of the loads with a fixed rate.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
}

impl Options {
    fn scenarios(&self) -> impl Iterator<Item = Scenario> + '_ {
        SCENARIOS.into_iter().filter(|scenario| self.has(scenario.protocol))
    }

    fn has(&self, protocol: Protocol) -> bool {
        self.protocols.is_empty() || self.protocols.contains(&protocol)
    }

    fn duration(&self) -> Duration {
        Duration::from_millis(self.millis as u64)
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    per_second: u64,
    p50: u64,
    p99: u64,
    /// The CPU time of the server for each request.
    cpu: u64,
    /// The CPU time of Redis for each request, if Redis is the store.
    store: Option<u64>,
}

type Results = Samples<(Scenario, Contender), Sample>;

/// The servers, which run during the whole benchmark.
struct Servers {
    cores: Cores,
    tidegate: Process,
    /// Redis, and the tidegate-server that uses it as a store, or the reason why they are missing.
    on_redis: Result<(Redis, Process), String>,
    /// The tidegate-server with a leased limit on Redis, or the reason why it is missing.
    leased: Result<Process, String>,
    /// The throttlecrab-server, or the reason why it is missing.
    throttlecrab: Result<Process, String>,
    /// The program of throttlecrab-server.
    program: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    let processors = std::thread::available_parallelism()?.get();
    let servers = Servers::start()?;
    servers.redis()?;
    let memory = memory::measure(servers.cores, servers.program.as_ref(), options)?;
    let mut results = Results::new();
    for _ in rounds(options.rounds) {
        for scenario in options.scenarios() {
            for contender in servers.contenders(scenario) {
                let sample = servers.sample(scenario, contender, options)?;
                results.add((scenario, contender), sample);
            }
        }
    }
    print!("{}", report::head(&servers, options)?);
    for scenario in options.scenarios() {
        print!("{}", report::table(&results, scenario, options)?);
    }
    print!("{}", report::memory(&memory, options));
    print!("{}", cores::table(processors, options)?);
    Ok(())
}

impl Servers {
    fn start() -> Outcome<Self> {
        let cores = Cores::choose();
        let on_redis = || -> Outcome<_> {
            let redis = block_on(async { Ok(Redis::start().await?) })?;
            cores.place(redis.pid().ok_or("redis-server has ended")?)?;
            let tidegate = Process::tidegate(cores, &redis.url(), LIMITS)?;
            Ok((redis, tidegate))
        };
        let program = throttlecrab_server();
        let throttlecrab = match &program {
            Some(program) => {
                Process::throttlecrab(cores, program).map_err(|error| error.to_string())
            }
            None => Err(".ci/install-throttlecrab has not been run".to_owned()),
        };
        Ok(Self {
            cores,
            tidegate: Process::tidegate(cores, "memory", LIMITS)?,
            on_redis: on_redis().map_err(|error| error.to_string()),
            leased: Err("the server was not started".to_owned()),
            throttlecrab,
            program,
        })
    }

    fn redis(&self) -> Outcome<&Redis> {
        Ok(self.on_redis.as_ref().map(|(redis, _)| redis).map_err(Clone::clone)?)
    }

    fn contenders(&self, scenario: Scenario) -> impl Iterator<Item = Contender> + '_ {
        let all = scenario.protocol.contenders().iter().copied();
        all.filter(move |contender| {
            let is_there = contender.peer != Peer::Throttlecrab || self.throttlecrab.is_ok();
            is_there && scenario.is_of(contender.peer)
        })
    }

    /// Returns the process id and the address of a contender's server.
    fn process(&self, contender: Contender) -> Outcome<(u32, SocketAddr)> {
        let protocol = contender.call.protocol();
        let process = match contender.peer {
            Peer::Tidegate => &self.tidegate,
            Peer::TidegateOnRedis => &self.on_redis.as_ref().map_err(Clone::clone)?.1,
            Peer::TidegateLeased => self.leased.as_ref().map_err(Clone::clone)?,
            Peer::Throttlecrab => self.throttlecrab.as_ref().map_err(Clone::clone)?,
            Peer::Redis => {
                let redis = self.redis()?;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, redis.port()));
                return Ok((redis.pid().ok_or("redis-server has ended")?, address));
            }
        };
        Ok((process.pid(), process.address(protocol)))
    }

    fn sample(
        &self,
        scenario: Scenario,
        contender: Contender,
        options: &Options,
    ) -> Outcome<Sample> {
        let (pid, address) = self.process(contender)?;
        let authority = address.to_string();
        let subjects = scenario.load.subjects(options);
        let requests: Vec<Vec<u8>> = subjects
            .iter()
            .map(|subject| contender.call.request(scenario.load, subject, &authority))
            .collect();
        let (pace, duration) = (scenario.shape.pace(options), options.duration());
        let connections = scenario.shape.connections();
        let mut client =
            Client::connect(address, connections, || exchange(contender.call, &authority))?;
        if scenario.load == Load::Refused {
            // Each subject uses its two admitted requests before the measurement.
            client.run(&requests, pace, Until::Requests(2 * u64::try_from(requests.len())?))?;
        }
        client.run(&requests, pace, Until::Time(duration / 2))?;

        let store = match contender.peer {
            Peer::TidegateOnRedis | Peer::TidegateLeased => self.redis()?.pid(),
            _ => None,
        };
        let (sample, allowed, all) = sample(&mut client, &requests, pace, duration, (pid, store))?;
        let expected = if scenario.load == Load::Refused { 0 } else { all };
        // The table says whether a row has admitted or refused requests, so other decisions are an
        // error.
        if allowed != expected {
            let name = scenario.name(options);
            return Err(format!("{name}, {contender}: {allowed} of {all} were allowed").into());
        }
        Ok(sample)
    }
}

/// Measures a server and its store. Returns the sample, the number of admitted requests, and the
/// number of all requests.
fn sample(
    client: &mut Client,
    requests: &[Vec<u8>],
    pace: Pace,
    duration: Duration,
    (pid, store): (u32, Option<u32>),
) -> Outcome<(Sample, u64, u64)> {
    let times = || -> Outcome<_> { Ok((cpu_time(pid)?, store.map(cpu_time).transpose()?)) };
    let (before, store_before) = times()?;
    let mut run = client.run(requests, pace, Until::Time(duration))?;
    let (after, store_after) = times()?;
    run.latencies.sort_unstable();
    let per_request = |cpu: Duration| -> Outcome<u64> { Ok(nanos(cpu)? / run.requests.max(1)) };
    let store = store_after.zip(store_before).map(|(after, before)| after.saturating_sub(before));
    let sample = Sample {
        per_second: run.requests * 1_000_000_000 / nanos(run.took)?.max(1),
        p50: percentile(&run.latencies, 50),
        p99: percentile(&run.latencies, 99),
        cpu: per_request(after.saturating_sub(before))?,
        store: store.map(per_request).transpose()?,
    };
    Ok((sample, run.allowed, run.requests))
}
