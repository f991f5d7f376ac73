//! One table of the figures that decide whether Tidegate is fast enough, each with its bound.

use crate::harness::Row;
use crate::{Outcome, http, memory, redis, server};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure each row once, with small loads, and judge nothing. The figures are meaningless.
    #[arg(long)]
    short: bool,
    /// Fail if a row is not met or not measured.
    #[arg(long, conflicts_with = "short")]
    check: bool,
}

/// Measures and prints. Returns `false` if `--check` requires a row that is not met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let mut rows = vec![];
    // The servers are last, because they move this process to one core.
    for (name, compare) in [
        ("memory", memory::compare as fn(bool) -> Vec<Row>),
        ("http", http::compare),
        ("redis", redis::compare),
        ("server", server::compare),
    ] {
        eprintln!("{name}");
        rows.extend(compare(options.short));
    }
    println!("| load | measured | wanted | |\n|---|--:|--:|---|");
    for row in &rows {
        println!("{}", row.markdown(!options.short));
    }
    Ok(!options.check || rows.iter().all(Row::is_met))
}
