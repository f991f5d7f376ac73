//! The targets: ratios to throttlecrab's server, and bounds.

use super::call::{Contender, Peer, Protocol};
use super::load::{Load, SCENARIOS, Scenario, Shape};
use super::memory::Footprint;
use super::{Options, Results, Sample};
use crate::harness::{Thousandths, Verdict};

/// The maximum ratio of the times of a pipelined request.
const MAX_PIPELINED: Thousandths = Thousandths(500);

/// The maximum of all other ratios.
const MAX_OTHER: Thousandths = Thousandths(1_000);

/// The maximum p99 of calls at a fixed rate in nanoseconds.
const MAX_P99: u64 = 1_000_000;

/// The maximum memory at rest in bytes.
const MAX_AT_REST: u64 = 20 << 20;

/// The maximum memory of a subject in bytes. The memory store takes this amount when its table has
/// just grown.
const MAX_PER_SUBJECT: u64 = 105;

const ONE: Thousandths = Thousandths(1_000);

/// The figure of a sample that is compared.
type Figure = fn(&Sample) -> u64;

/// Compares all ratios that were measured with their targets.
pub(super) fn judge(results: &Results, options: &Options) -> Vec<Verdict> {
    let mut verdicts = vec![];
    for scenario in SCENARIOS {
        let max = match (scenario.shape, scenario.load) {
            (Shape::Pipelined, Load::Hot | Load::Many) => MAX_PIPELINED,
            _ => MAX_OTHER,
        };
        let name = scenario.name(options);
        let figures: [(&str, Figure); 2] =
            [("time for each request", nanos_between), ("server's CPU", |sample| sample.cpu)];
        for (what, figure) in figures {
            // At a fixed rate, the time between requests does not depend on the server.
            if scenario.shape == Shape::Arrivals && what != "server's CPU" {
                continue;
            }
            if let Some(measured) = ratio(results, scenario, figure) {
                let what = format!("{name}: {what}, of throttlecrab's");
                verdicts.push(Verdict::new(what, measured, max));
            }
        }
    }
    verdicts.extend(at_rate(results, options));
    verdicts
}

fn nanos_between(sample: &Sample) -> u64 {
    1_000_000_000 / sample.per_second.max(1)
}

/// Returns the key of the samples of a server.
fn key(scenario: Scenario, peer: Peer) -> Option<(Scenario, Contender)> {
    let contender =
        scenario.protocol.contenders().iter().find(|contender| contender.peer == peer)?;
    Some((scenario, *contender))
}

/// Returns the ratio of a figure of our server to the same figure of throttlecrab's server.
fn ratio(results: &Results, scenario: Scenario, figure: Figure) -> Option<Thousandths> {
    let [ours, theirs] = [Peer::Tidegate, Peer::Throttlecrab].map(|peer| key(scenario, peer));
    results.ratio((&ours?, &theirs?), figure).ok()
}

/// Compares the latency of Envoy's calls at a fixed rate with its target.
fn at_rate(results: &Results, options: &Options) -> Option<Verdict> {
    let scenario = Scenario { protocol: Protocol::Grpc, shape: Shape::Arrivals, load: Load::Many };
    let p99 = results.median(&key(scenario, Peer::Tidegate)?, |sample| sample.p99).ok()?;
    let what = format!("{}: p99, of 1 ms", scenario.name(options));
    Some(Verdict::new(what, Thousandths::ratio(p99, MAX_P99)?, ONE))
}

/// Compares the memory of our server with its targets.
pub(super) fn judge_memory(footprints: &[Footprint]) -> Vec<Verdict> {
    let ours = footprints.iter().filter(|footprint| footprint.peer == Peer::Tidegate);
    let verdicts = |footprint: &Footprint| {
        [
            ("resident at rest, of 20 MiB", footprint.at_rest.resident, MAX_AT_REST),
            ("bytes a subject, of 105", footprint.per_subject(), MAX_PER_SUBJECT),
        ]
    };
    ours.flat_map(verdicts)
        .filter_map(|(what, measured, max)| {
            let measured = Thousandths::ratio(measured, max)?;
            Some(Verdict::new(what, measured, ONE))
        })
        .collect()
}
