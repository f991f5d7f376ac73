//! The table, in Markdown, and the targets.

use std::fmt::Write;

use super::Options;
use super::scenario::Figures;
use crate::figures::Thousandths;

/// The number of nodes for which there are targets.
const NODES_OF_TARGETS: usize = 8;

pub(super) fn table(rows: &[(usize, Figures)], options: &Options) -> String {
    let Options { rate, limit, span, share, seed, .. } = options;
    let mut table = format!(
        "{rate} requests per second at all nodes together, a limit of {limit}; leases of {span} ms and a share of {share}; \
         100 to 300 µs each way; seed {seed}.\n\n\
         | nodes | above the limit | refused too early | stranded by a killed node | unused of a full window \
         | server calls per decision | … under a full load |\n\
         |--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for (nodes, it) in rows {
        let _ = writeln!(
            table,
            "| {nodes} | {} | {} % | {} % | {} % | {} | {} |",
            it.overshoot,
            percent(it.refused).exact(),
            percent(it.stranded).exact(),
            percent(it.unused).exact(),
            Thousandths(it.calls).exact(),
            Thousandths(it.calls_when_full).exact(),
        );
    }
    table
}

/// The targets, and whether all are met.
pub(super) fn targets(rows: &[(usize, Figures)]) -> (String, bool) {
    let over = rows.iter().map(|(_, it)| it.overshoot).max().unwrap_or(0);
    let mut targets = vec![("above the limit, at any number of nodes, in millionths", over, 0)];
    if let Some((_, it)) = rows.iter().find(|(nodes, _)| *nodes == NODES_OF_TARGETS) {
        targets.push(("refused too early on 8 nodes, in millionths", it.refused, 5_000));
        targets.push(("stranded by one of 8 nodes, in millionths", it.stranded, 10_000));
        targets.push(("unused of a window on 8 nodes, in millionths", it.unused, 10_000));
    }
    let mut list = "\n".to_owned();
    for (what, measured, max) in &targets {
        let word = if measured <= max { "met" } else { "NOT MET" };
        let _ = writeln!(list, "- {word}: {what}: {measured} of at most {max}");
    }
    (list, targets.iter().all(|(_, measured, max)| measured <= max))
}

/// Of millionths.
fn percent(millionths: u64) -> Thousandths {
    Thousandths(millionths / 10)
}
