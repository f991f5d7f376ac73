//! A web server that says hello, without a limiter, with one in memory, and with one on Redis.

mod load;
mod report;
mod server;

use std::fmt;

use tidegate_testkit::servers::Redis;

use crate::Outcome;
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
}

/// Where the limiter keeps its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Limits {
    /// There is no limiter.
    Off,
    /// In the server's own memory.
    Memory,
    /// On a Redis.
    Redis,
}

const ALL: [Limits; 3] = [Limits::Off, Limits::Memory, Limits::Redis];

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Memory => "memory",
            Self::Redis => "redis",
        })
    }
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let load = load::Generator::find()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let redis = Redis::start().await?;
        let servers = ALL.map(|limits| Server::start(limits, &redis.url()));
        let mut results: [Vec<Sample>; 3] = [vec![], vec![], vec![]];
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
