//! The benchmark of `tidegate-cluster`: what a decision costs the nodes and the client, on clusters of
//! one, two and three nodes, and for a hot tenant whose limit is split over shards.

mod load;
mod report;
mod scenario;

use std::collections::BTreeMap;

use crate::{Outcome, at_least_one, block_on};
use load::{Sample, sample};
use scenario::{Scenario, Sites};

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Decisions in each round for each figure.
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one)]
    decisions: usize,
    /// Callers, on one connection to each node.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    callers: usize,
    /// Tenants.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    tenants: usize,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    // One thread, whose time is all that the client takes.
    block_on(compare(options))
}

async fn compare(options: &Options) -> Outcome<()> {
    let sites = Sites::start().await?;
    let mut samples: BTreeMap<Scenario, Vec<Sample>> = BTreeMap::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for scenario in Scenario::all() {
            let sample = sample(&sites, scenario, options).await?;
            samples.entry(scenario).or_default().push(sample);
        }
    }
    print!("{}", report::head(&sites, options));
    print!("{}", report::tenants(&samples)?);
    print!("{}", report::hot(&samples)?);
    Ok(())
}
