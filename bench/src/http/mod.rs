//! A web server that says hello: without a limiter, with one in its handler, and behind layers.

mod load;
mod report;
mod server;
mod stack;

use std::fmt;

use tidegate_test_servers::Redis;

use crate::{Outcome, block_on};
use load::Sample;
use server::Server;
pub(crate) use server::{ServerOptions, serve};

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds in each round for each server.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Connections that ask all the time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Requests in each round through each stack of layers, without a network.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Measures the stacks only, which need no `wrk` and no Redis.
    #[arg(long)]
    stack_only: bool,
}

/// Where the limiter keeps its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Limits {
    /// There is no limiter.
    Off,
    /// The layer of `tidegate-http` with its fields, in the server's own memory.
    Layer,
    /// The layer of tower_governor with its fields, in the server's own memory.
    Governor,
    /// A limiter in the handler, in the server's own memory.
    Memory,
    /// A limiter in the handler, on a Redis.
    Redis,
}

const ALL: [Limits; 5] =
    [Limits::Off, Limits::Layer, Limits::Governor, Limits::Memory, Limits::Redis];

type Results = [Vec<Sample>; ALL.len()];

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

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    println!("{}", stack::measure(options)?);
    if options.stack_only {
        return Ok(());
    }
    let load = load::Generator::find()?;
    block_on(async {
        let redis = Redis::start().await?;
        let servers = ALL.map(|limits| Server::start(limits, &redis.url()));
        let mut results = Results::default();
        for round in 1..=options.rounds {
            eprintln!("round {round} of {}", options.rounds);
            for (server, samples) in servers.iter().zip(&mut results) {
                let server = server.as_ref().map_err(ToString::to_string)?;
                samples.push(load.run(server.port(), options)?);
            }
        }
        print!("{}", report::table(options, &load, redis.version(), &results)?);
        Ok(())
    })
}
