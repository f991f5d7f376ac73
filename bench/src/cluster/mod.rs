//! Measures the CPU time of a decision on the nodes and the client of a Redis Cluster. One table
//! has many tenants on one, two and three nodes. The other has a busy tenant whose limit is split
//! over shards.

mod load;
mod scenario;

use crate::harness::{Samples, Thousandths, rounds};
use crate::{Outcome, at_least_one, block_on};
use load::{Sample, sample};
use scenario::{Scenario, Sites};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Number of decisions in each measurement.
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one)]
    decisions: usize,
    /// Number of callers, on one connection to each node.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    callers: usize,
    /// Number of tenants.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    tenants: usize,
}

pub(crate) fn run(options: &Options) -> Outcome<()> {
    block_on(compare(options))
}

async fn compare(options: &Options) -> Outcome<()> {
    let sites = Sites::start().await?;
    let mut samples = Samples::new();
    for _ in rounds(options.rounds) {
        for scenario in Scenario::all() {
            samples.add(scenario, sample(&sites, scenario, options).await?);
        }
    }
    let node = sites.site(1)?.cluster.nodes().first().ok_or("a cluster without nodes")?;
    let Options { rounds, decisions, callers, tenants } = options;
    println!(
        "{}, clusters of 1, 2 and 3 primaries on this machine. Medians of {rounds} \
         interleaved rounds of {decisions} decisions on a token bucket, all allowed, by {callers} callers \
         on one connection to each node; {tenants} tenants. CPU is user and system time per decision.\n",
        node.version(),
    );
    tenants_table(&samples)?;
    hot_table(&samples)
}

fn tenants_table(samples: &Samples<Scenario, Sample>) -> Outcome<()> {
    println!(
        "## Many tenants\n\n\
         | tenants | batch | nodes | decisions/s | client's CPU, µs | nodes' CPU, µs | decisions per \
         second of nodes' CPU | relative to one node | busiest node |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for scenario in Scenario::all() {
        let Scenario::Tenants { nodes, drawn, batch } = scenario else { continue };
        let per_cpu_second = |nodes| -> Outcome<u64> {
            let scenario = Scenario::Tenants { nodes, drawn, batch };
            Ok(1_000_000_000 / samples.median(&scenario, |sample| sample.nodes)?.max(1))
        };
        let (all, one) = (per_cpu_second(nodes)?, per_cpu_second(1)?);
        let relative =
            Thousandths::ratio(all, one).map_or_else(String::new, |ratio| ratio.to_string());
        let row = row(samples, scenario)?;
        println!(
            "| {drawn} | {batch} | {nodes} | {} | {all} | {relative} | {} % |",
            row.shown(),
            row.busiest / 10
        );
    }
    println!();
    Ok(())
}

fn hot_table(samples: &Samples<Scenario, Sample>) -> Outcome<()> {
    println!(
        "## One hot tenant on 3 nodes\n\n\
         | shards | decisions/s | client's CPU, µs | nodes' CPU, µs | busiest node | maximum decisions/s, \
         if that node had a core |\n\
         |--:|--:|--:|--:|--:|--:|"
    );
    for scenario in Scenario::all() {
        let Scenario::Hot { shards } = scenario else { continue };
        let row = row(samples, scenario)?;
        let max = 1_000_000_000_000 / (row.nodes * row.busiest).max(1);
        println!("| {shards} | {} | {} % | {max} |", row.shown(), row.busiest / 10);
    }
    Ok(())
}

/// Returns the median of each figure of a scenario.
fn row(samples: &Samples<Scenario, Sample>, scenario: Scenario) -> Outcome<Sample> {
    let median = |figure: fn(&Sample) -> u64| samples.median(&scenario, figure);
    Ok(Sample {
        per_second: median(|sample| sample.per_second)?,
        client: median(|sample| sample.client)?,
        nodes: median(|sample| sample.nodes)?,
        busiest: median(|sample| sample.busiest)?,
    })
}

impl Sample {
    /// Returns the cells of the columns that both tables have.
    fn shown(&self) -> String {
        let Self { per_second, client, nodes, .. } = *self;
        format!("{per_second} | {} | {}", Thousandths(client), Thousandths(nodes))
    }
}
