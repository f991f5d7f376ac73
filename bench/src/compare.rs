//! Prints one table of the figures that decide whether Tidegate is fast enough, each with its
//! bound.

use std::time::Duration;

use crate::harness::{Noise, Row};
use crate::{Outcome, http, memory, redis, server};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure each row once, with small loads, and judge nothing. The figures are meaningless.
    #[arg(long)]
    short: bool,
    /// Part of the table to measure. The option can be repeated. Default: all parts.
    #[arg(long = "only", value_enum)]
    parts: Vec<Part>,
    /// Fail if a row is not met or not measured.
    #[arg(long, conflicts_with = "short")]
    check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Memory,
    Http,
    Redis,
    Server,
}

/// Returns `false` if `--check` is set and a row misses its bound or was not measured.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let mut rows = vec![];
    // The servers are last, because their benchmark moves this process to one core.
    for (part, compare) in [
        (Part::Memory, memory::compare as fn(bool) -> Vec<Row>),
        (Part::Http, http::compare),
        (Part::Redis, redis::compare),
        (Part::Server, server::compare),
    ] {
        if options.parts.is_empty() || options.parts.contains(&part) {
            rows.extend(compare(options.short));
        }
    }
    println!("| load | measured | wanted | |\n|---|--:|--:|---|");
    for row in &rows {
        println!("{}", row.markdown(!options.short));
    }
    let span = Duration::from_millis(if options.short { 1 } else { 2_000 });
    println!("\n{}", Noise::measure(span)?);
    Ok(!options.check || rows.iter().all(Row::is_met))
}
