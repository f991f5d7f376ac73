//! Measures the ways to get decisions from one Redis: single calls, batches, coalesced calls,
//! leases and the deny cache.

mod load;
mod targets;
mod way;

use std::time::Duration;

use load::{LOADS, Load, Sample, sample};
use way::Way;

use crate::harness::{Samples, Server, Thousandths, finish, rounds};
use crate::{Outcome, at_least_one, block_on};

/// The numbers of callers on the one connection.
const CALLERS: [usize; 3] = [1, 64, 512];

type Results = Samples<(Load, Way, usize), Sample>;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    rounds: usize,
    /// Milliseconds of each measurement. Before it, the same calls are made for half of that time.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    millis: usize,
    /// Span of leases, in milliseconds. At 100,000 calls per second, a span of 10 s leases as much
    /// as a span of 1 s at a million calls per second.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    span: usize,
    /// Load to measure. The option can be repeated. Default: all loads.
    #[arg(long = "load", value_enum)]
    loads: Vec<Load>,
    /// Way to measure. The option can be repeated. Default: all ways.
    #[arg(long = "way", value_enum)]
    ways: Vec<Way>,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

impl Options {
    fn span(&self) -> Duration {
        Duration::from_millis(self.span as u64)
    }

    fn duration(&self) -> Duration {
        Duration::from_millis(self.millis as u64)
    }

    fn loads(&self) -> impl Iterator<Item = Load> + '_ {
        LOADS.into_iter().filter(|load| self.loads.is_empty() || self.loads.contains(load))
    }

    fn ways(&self, load: Load) -> impl Iterator<Item = Way> + '_ {
        let is_chosen = |way: &Way| self.ways.is_empty() || self.ways.contains(way);
        load.ways().iter().copied().filter(is_chosen)
    }
}

/// Returns `false` if `--check` is set and a target is missed.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    block_on(compare(options))
}

async fn compare(options: &Options) -> Outcome<bool> {
    let server = Server::start().await?;
    let mut results = Results::new();
    for _ in rounds(options.rounds) {
        for load in options.loads() {
            for callers in CALLERS {
                for way in options.ways(load) {
                    let sample = sample(&server, load, way, callers, options).await?;
                    results.add((load, way, callers), sample);
                }
            }
        }
    }
    println!(
        "{}, over TCP on this machine, one connection, a client on one thread; a span of leases of {} ms. Medians of {} \
         interleaved rounds of {} ms. CPU is user and system time per decision. The CPU time of the client includes the \
         time that generates the load. With batches, fewer callers have the same number of decisions in flight.",
        server.redis.version(),
        options.span,
        options.rounds,
        options.millis,
    );
    for load in options.loads() {
        print_table(&results, load, options)?;
    }
    Ok(finish(&targets::judge(&results), options.check))
}

/// Prints the table of a load, with a row for each way.
fn print_table(results: &Results, load: Load, options: &Options) -> Outcome<()> {
    let [one, some, many] = CALLERS;
    println!(
        "\n## {load}\n\n\
         | | decisions/s, {many} callers | p50 of {one}, µs | p99 of {some}, µs | server's CPU at {many}, µs | × `INCR` \
         | client's CPU, µs | without the server |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|"
    );
    for way in options.ways(load) {
        let median = |callers, figure: fn(&Sample) -> u64| {
            results.median(&(load, way, callers), figure).map(Thousandths)
        };
        let incr = results.median(&(load, Way::Incr, many), |sample| sample.server);
        let server = median(many, |sample| sample.server)?;
        let times = incr.ok().and_then(|incr| Thousandths::ratio(server.0, incr));
        println!(
            "| {way} | {} | {} | {} | {} | {} | {} | {} % |",
            median(many, |sample| sample.per_second)?.0,
            median(one, |sample| sample.p50)?,
            median(some, |sample| sample.p99)?,
            server.exact(),
            times.map_or_else(String::new, Thousandths::exact),
            median(many, |sample| sample.client)?.exact(),
            median(many, |sample| sample.local * 100)?,
        );
    }
    Ok(())
}
