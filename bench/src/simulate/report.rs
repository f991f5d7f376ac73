//! The table, in Markdown, and the targets.

use std::fmt::Write;

use super::Options;
use super::scenario::Figures;
use crate::figures::Thousandths;
use crate::verdict::Verdict;

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

/// What is wanted of any number of nodes, and of 8.
pub(super) fn judge(rows: &[(usize, Figures)]) -> Vec<Verdict> {
    let verdict = |what: &str, measured, max| {
        let (what, max) = (what.to_owned(), Thousandths(max));
        Verdict { what, max, measured }
    };
    let over = rows.iter().map(|(_, it)| it.overshoot).max().unwrap_or(0);
    let over = Thousandths(over.saturating_mul(1_000));
    let mut verdicts = vec![verdict("requests above the limit, on any number of nodes", over, 0)];
    if let Some((_, it)) = rows.iter().find(|(nodes, _)| *nodes == NODES_OF_TARGETS) {
        verdicts.extend([
            verdict("percent refused too early on 8 nodes", percent(it.refused), 500),
            verdict("percent stranded by one of 8 nodes", percent(it.stranded), 1_000),
            verdict("percent of a full window unused on 8 nodes", percent(it.unused), 1_000),
        ]);
    }
    verdicts
}

/// Of millionths.
fn percent(millionths: u64) -> Thousandths {
    Thousandths(millionths / 10)
}
