//! Simulates leases on many nodes in virtual time: their effect on a limit, and the number of calls
//! to the server. The results do not depend on the machine.

mod scenario;

use std::time::Duration;

use tidegate_memory::Lease;
use tidegate_memory::core::Share;

use self::scenario::Figures;
use crate::harness::{Thousandths, Verdict, finish};
use crate::{Outcome, at_least_one};

/// The number of nodes to which most targets apply.
const NODES_OF_TARGETS: usize = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Numbers of nodes.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,250,1000", value_parser = at_least_one)]
    nodes: Vec<usize>,
    /// Seed. The same seed gives the same result.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests per second at all nodes together.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// Limit, in requests, of a window that is longer than the run.
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(10..))]
    limit: u64,
    /// Span of leases, in milliseconds.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    span: usize,
    /// Maximum share of the remaining amount in one chunk.
    #[arg(long, default_value = "1/200")]
    share: Share,
    /// Number of runs in which a node is killed. The worst run counts.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    kills: usize,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

impl Options {
    fn lease(&self) -> Lease {
        Lease::new().span(Duration::from_millis(self.span as u64)).max_share(self.share)
    }
}

/// Returns `false` if `--check` is set and a target is missed.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let mut rows = vec![];
    for &nodes in &options.nodes {
        eprintln!("{nodes} nodes");
        rows.push((nodes, Figures::simulated(nodes, options)?));
    }
    print_table(&rows, options);
    Ok(finish(&judge(&rows), options.check))
}

fn print_table(rows: &[(usize, Figures)], options: &Options) {
    let Options { rate, limit, span, share, seed, .. } = options;
    println!(
        "{rate} requests per second at all nodes together, a limit of {limit}; leases of {span} ms and a share of {share}; \
         100 to 300 µs each way; seed {seed}.\n\n\
         | nodes | above the limit | refused too early | stranded by a killed node | unused of a full window \
         | server calls per decision | … under a full load |\n\
         |--:|--:|--:|--:|--:|--:|--:|"
    );
    for (nodes, figures) in rows {
        println!(
            "| {nodes} | {} | {} % | {} % | {} % | {} | {} |",
            figures.overshoot,
            percent(figures.refused).exact(),
            percent(figures.stranded).exact(),
            percent(figures.unused).exact(),
            Thousandths(figures.calls).exact(),
            Thousandths(figures.calls_when_full).exact(),
        );
    }
}

/// Compares the figures with their targets. One target applies to all numbers of nodes, and the
/// others to 8 nodes.
fn judge(rows: &[(usize, Figures)]) -> Vec<Verdict> {
    let verdict = |what, measured, max| Verdict::new(what, measured, Thousandths(max));
    let over = rows.iter().map(|(_, figures)| figures.overshoot).max().unwrap_or(0);
    let over = Thousandths(over.saturating_mul(1_000));
    let mut verdicts = vec![verdict("requests above the limit, on any number of nodes", over, 0)];
    if let Some((_, figures)) = rows.iter().find(|(nodes, _)| *nodes == NODES_OF_TARGETS) {
        verdicts.extend([
            verdict("percent refused too early on 8 nodes", percent(figures.refused), 500),
            verdict("percent stranded by one of 8 nodes", percent(figures.stranded), 1_000),
            verdict("percent of a full window unused on 8 nodes", percent(figures.unused), 1_000),
        ]);
    }
    verdicts
}

/// Converts millionths to percent.
fn percent(millionths: u64) -> Thousandths {
    Thousandths(millionths / 10)
}
