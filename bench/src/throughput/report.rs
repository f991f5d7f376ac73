//! The tables, in Markdown.

use std::fmt::Write;

use super::load::{Load, Sample};
use super::targets::median;
use super::way::Way;
use super::{CALLERS, Options, Results};
use crate::Outcome;
use crate::figures::Thousandths;
use crate::redis::server::Server;
use crate::verdict::{self, Verdict};

/// What was measured, and how.
pub(crate) fn head(server: &Server, options: &Options) -> String {
    format!(
        "{}, over TCP on this machine, one connection, a client on one thread; a span of leases of {} ms. Medians of {} \
         interleaved rounds of {} ms. CPU is user and system, per decision; the client's is with that of the load. In \
         batches there are as many decisions at once as there are callers otherwise.\n",
        server.redis.version(),
        options.span,
        options.rounds,
        options.millis,
    )
}

/// A table of all ways to bear a load.
pub(crate) fn table(results: &Results, load: Load, options: &Options) -> Outcome<String> {
    let [one, some, many] = CALLERS;
    let mut table = format!(
        "\n## {load}\n\n\
         | | decisions/s, {many} callers | p50 of {one}, µs | p99 of {some}, µs | server's CPU at {many}, µs | × `INCR` \
         | client's CPU, µs | without the server |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for way in options.ways(load) {
        let of = |callers, figure: fn(&Sample) -> u64| {
            median(results, (load, way, callers), figure).ok_or("not measured")
        };
        let incr = median(results, (load, Way::Incr, many), |it| it.server).unwrap_or(0);
        let server = of(many, |it| it.server)?;
        let times = Thousandths::of(server, incr).map_or_else(String::new, Thousandths::exact);
        writeln!(
            table,
            "| {way} | {} | {} | {} | {} | {times} | {} | {} % |",
            of(many, |it| it.per_second)?,
            Thousandths(of(one, |it| it.p50)?),
            Thousandths(of(some, |it| it.p99)?),
            Thousandths(server).exact(),
            Thousandths(of(many, |it| it.client)?).exact(),
            Thousandths(of(many, |it| it.local * 100)?),
        )?;
    }
    Ok(table)
}

/// The targets.
pub(crate) fn targets(verdicts: &[Verdict]) -> String {
    format!("\n## Targets\n\n{}", verdict::list(verdicts))
}
