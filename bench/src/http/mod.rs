//! Measures a web server that answers with a greeting: without a limiter, with a limiter in its
//! handler, and with layers around its handler.

mod compare;
mod load;
mod server;
mod stack;

use std::fmt;

use tidegate_test_servers::Redis;

use crate::harness::{Samples, Thousandths, rounds};
use crate::{Outcome, at_least_one, block_on};
pub(crate) use compare::compare;
use load::Sample;
use server::Server;
pub(crate) use server::{ServerOptions, serve};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Seconds of each measurement of a server.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Number of connections, each with one request in flight.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Number of requests in each measurement without a network.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Measure layers without a network only. This needs neither `wrk` nor a Redis.
    #[arg(long)]
    stack_only: bool,
}

/// The limiter of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Limits {
    Off,
    /// The layer of `tidegate-http` with rate-limit fields, on a memory store.
    Layer,
    /// The layer of tower_governor with rate-limit fields, in memory.
    Governor,
    /// A limiter in the handler, on a memory store.
    Memory,
    /// A limiter in the handler, on Redis.
    Redis,
}

const ALL: [Limits; 5] =
    [Limits::Off, Limits::Layer, Limits::Governor, Limits::Memory, Limits::Redis];

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Layer => "layer",
            Self::Governor => "governor",
            Self::Memory => "memory",
            Self::Redis => "redis",
        })
    }
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    let costs = stack::measure(options.rounds, options.requests)?;
    println!("{}", stack::table(&costs, options)?);
    if options.stack_only {
        return Ok(());
    }
    let load = load::Generator::find()?;
    block_on(async {
        let redis = Redis::start().await?;
        let servers = ALL.map(|limits| Server::start(limits, &redis.url()));
        let mut samples = Samples::new();
        for _ in rounds(options.rounds) {
            for (limits, server) in ALL.into_iter().zip(&servers) {
                let server = server.as_ref().map_err(ToString::to_string)?;
                samples.add(limits, load.run(server.port(), options)?);
            }
        }
        let Options { rounds, seconds, connections, .. } = options;
        println!(
            "An axum server that answers with a greeting, on one thread; {} sends requests from another thread on \
             {connections} connections; {} over TCP on this machine. Medians of {rounds} interleaved rounds of \
             {seconds} s; ratios are medians of the rounds' ratios to the server without a limiter.\n\n\
             | limiter | requests/s | ratio | p50, µs | ratio | p99, µs | ratio |\n\
             |---|--:|--:|--:|--:|--:|--:|",
            load.version,
            redis.version(),
        );
        for limits in ALL {
            println!("{}", row(&samples, limits)?);
        }
        Ok(())
    })
}

fn row(samples: &Samples<Limits, Sample>, limits: Limits) -> Outcome<String> {
    let name = match limits {
        Limits::Off => "none",
        Limits::Layer => "**tidegate-http**, fields on",
        Limits::Governor => "tower_governor, fields on",
        Limits::Memory => "`MemoryStore` in the handler",
        Limits::Redis => "`RedisStore` in the handler",
    };
    let ratio = |figure: fn(&Sample) -> u64| samples.ratio((&limits, &Limits::Off), figure);
    let micros = |figure: fn(&Sample) -> u64| -> Outcome<(u64, Thousandths)> {
        Ok((samples.median(&limits, figure)? / 1_000, ratio(figure)?))
    };
    let rate = samples.median(&limits, |sample| sample.per_second)?;
    let rate_ratio = ratio(|sample| sample.per_second)?;
    let ((p50, p50_ratio), (p99, p99_ratio)) =
        (micros(|sample| sample.p50)?, micros(|sample| sample.p99)?);
    Ok(format!("| {name} | {rate} | {rate_ratio} | {p50} | {p50_ratio} | {p99} | {p99_ratio} |"))
}
