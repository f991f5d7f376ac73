//! What was measured, as text in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Options;
use super::load::Sample;
use super::scenario::{Scenario, Sites};
use crate::Outcome;
use crate::figures::{Thousandths, middle};

type Samples = BTreeMap<Scenario, Vec<Sample>>;

pub(crate) fn head(sites: &Sites, options: &Options) -> String {
    let version = sites.of(1).ok().and_then(|site| site.cluster.nodes().first());
    let version = version.map(|node| node.version().to_string()).unwrap_or_default();
    let Options { rounds, decisions, callers, tenants } = options;
    format!(
        "{version}, clusters of 1, 2 and 3 primaries on this machine. Medians of {rounds} \
         interleaved rounds of {decisions} decisions on a token bucket, all allowed, by {callers} callers \
         on one connection to each node; {tenants} tenants. CPU is user and system, per decision.\n\n"
    )
}

/// Many tenants, on more and more nodes.
pub(crate) fn tenants(samples: &Samples) -> Outcome<String> {
    let mut text = "## Many tenants\n\n\
        | tenants | at once | nodes | decisions/s | client's CPU, µs | nodes' CPU, µs | decisions per \
        second of nodes' CPU | of one node's | busiest node |\n\
        |---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for scenario in Scenario::all() {
        let Scenario::Tenants { nodes, drawn, batch } = scenario else { continue };
        let row = Row::of(samples, scenario)?;
        let one = Row::of(samples, Scenario::Tenants { nodes: 1, drawn, batch })?;
        let of_one = Thousandths::of(row.per_cpu_second(), one.per_cpu_second());
        let of_one = of_one.map(|it| it.to_string()).unwrap_or_default();
        writeln!(
            text,
            "| {drawn} | {batch} | {nodes} | {} | {} | {} | {} | {of_one} | {} % |",
            row.per_second,
            Thousandths(row.client),
            Thousandths(row.nodes),
            row.per_cpu_second(),
            row.busiest / 10,
        )?;
    }
    text.push('\n');
    Ok(text)
}

/// One hot tenant, in more and more shards.
pub(crate) fn hot(samples: &Samples) -> Outcome<String> {
    let mut text = "## One hot tenant on 3 nodes\n\n\
        | shards | decisions/s | client's CPU, µs | nodes' CPU, µs | busiest node | most decisions/s, \
        if that node had a core |\n\
        |--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for scenario in Scenario::all() {
        let Scenario::Hot { shards } = scenario else { continue };
        let row = Row::of(samples, scenario)?;
        let most = 1_000_000_000_000 / (row.nodes * row.busiest).max(1);
        writeln!(
            text,
            "| {shards} | {} | {} | {} | {} % | {most} |",
            row.per_second,
            Thousandths(row.client),
            Thousandths(row.nodes),
            row.busiest / 10,
        )?;
    }
    text.push('\n');
    Ok(text)
}

/// The medians of a scenario.
struct Row {
    per_second: u64,
    client: u64,
    nodes: u64,
    busiest: u64,
}

impl Row {
    fn of(samples: &Samples, scenario: Scenario) -> Outcome<Self> {
        let samples =
            samples.get(&scenario).ok_or_else(|| format!("{scenario:?} was not measured"))?;
        let median = |figure: fn(&Sample) -> u64| middle(samples.iter().map(figure).collect());
        Ok(Self {
            per_second: median(|sample| sample.per_second),
            client: median(|sample| sample.client),
            nodes: median(|sample| sample.nodes),
            busiest: median(|sample| sample.busiest),
        })
    }

    /// Decisions that one core full of nodes could make in a second.
    fn per_cpu_second(&self) -> u64 {
        1_000_000_000 / self.nodes.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::scenario::Drawn;

    #[test]
    fn the_median_of_each_figure_stands_in_the_table() {
        let sample = |per_second, nodes| Sample { per_second, client: 4_000, nodes, busiest: 500 };
        let some = vec![sample(10, 5_000), sample(30, 10_000), sample(20, 20_000)];
        let samples: Samples = Scenario::all().map(|scenario| (scenario, some.clone())).collect();
        let tenants = tenants(&samples).unwrap();
        let row = "| Zipf | 1 | 2 | 20 | 4.00 | 10.00 | 100000 | 1.00 | 50 % |\n";
        assert!(tenants.contains(row), "{tenants}");
        assert_eq!(Drawn::Even.to_string(), "even");
        let hot = hot(&samples).unwrap();
        assert!(hot.contains("| 16 | 20 | 4.00 | 10.00 | 50 % | 200000 |\n"), "{hot}");
    }
}
