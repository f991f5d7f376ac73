//! Leases on many nodes, in virtual time: what they cost a limit and save a server, against the number of nodes. Nothing
//! here depends on the machine.

mod plot;
mod report;
mod scenario;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_memory::Lease;
use tidegate_memory::core::Share;

use self::scenario::Figures;
use crate::{Outcome, at_least_one, verdict};

/// What to simulate.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Numbers of nodes.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,250,1000", value_parser = at_least_one)]
    nodes: Vec<usize>,
    /// The seed from which everything follows.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests per second, at all nodes together.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// The limit, in requests: of the whole run, and of each second where windows end.
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(10..))]
    limit: u64,
    /// The span of leases in milliseconds.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    span: usize,
    /// The maximum share of what remains in one chunk, such as 1/200.
    #[arg(long, default_value = "1/200")]
    share: Share,
    /// How often a node is killed, each in a run of its own; the worst counts.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    kills: usize,
    /// Draws the figures into this file, as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Fail if a target is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

impl Options {
    fn lease(&self) -> Lease {
        Lease::new().span(Duration::from_millis(self.span as u64)).max_share(self.share)
    }
}

/// Simulates and prints. Returns whether all targets are met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let mut rows = vec![];
    for &nodes in &options.nodes {
        eprintln!("{nodes} nodes");
        rows.push((nodes, Figures::of(nodes, options)?));
    }
    print!("{}", report::table(&rows, options));
    if let Some(path) = &options.plot {
        fs::write(path, plot::draw(&rows))?;
    }
    let verdicts = report::judge(&rows);
    print!("\n{}", verdict::list(&verdicts));
    Ok(verdict::are_met(&verdicts))
}
