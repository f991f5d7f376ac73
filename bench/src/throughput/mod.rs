//! The ways to a decision on one Redis: each call by itself, in batches, coalesced, from leases, from the deny cache.

mod load;
mod report;
mod targets;
mod way;

use std::time::Duration;

use load::{LOADS, Load, Sample, sample};
use way::Way;

use crate::redis::server::Server;
use crate::verdict;
use crate::{Outcome, at_least_one, block_on};

/// The callers on the one connection.
const CALLERS: [usize; 3] = [1, 64, 512];

/// Samples by load, way and the number of callers.
type Results = std::collections::BTreeMap<(Load, Way, usize), Vec<Sample>>;

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    rounds: usize,
    /// Milliseconds for each figure in each round, after half as many to warm up.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    millis: usize,
    /// The span of leases in milliseconds. At a tenth of a million calls a second, a span of ten seconds leases what one of a
    /// second leases at a million.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    span: usize,
    /// Only these loads.
    #[arg(long = "load", value_enum)]
    loads: Vec<Load>,
    /// Only these ways.
    #[arg(long = "way", value_enum)]
    ways: Vec<Way>,
    /// Fail if a target is missed.
    #[arg(long)]
    pub(crate) check: bool,
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

/// Measures and prints. Returns whether all targets are met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    block_on(compare(options))
}

async fn compare(options: &Options) -> Outcome<bool> {
    let server = Server::start().await?;
    let mut results = Results::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for load in options.loads() {
            for callers in CALLERS {
                for way in options.ways(load) {
                    let sample = sample(&server, load, way, callers, options).await?;
                    results.entry((load, way, callers)).or_default().push(sample);
                }
            }
        }
    }
    print!("{}", report::head(&server, options));
    for load in options.loads() {
        print!("{}", report::table(&results, load, options)?);
    }
    let verdicts = targets::judge(&results);
    print!("{}", report::targets(&verdicts));
    Ok(verdict::are_met(&verdicts))
}
