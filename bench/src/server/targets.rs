//! Targets: ratios to throttlecrab's server, and bounds.

use super::call::{Peer, Protocol};
use super::load::{Load, SCENARIOS, Scenario, Shape};
use super::memory::Footprint;
use super::{Options, Results, Sample};
use crate::figures::{Thousandths, middle};
use crate::verdict::Verdict;

/// Half the time for each request, where requests are pipelined.
const MAX_PIPELINED: Thousandths = Thousandths(500);

/// Behind nowhere else.
const MAX_OTHER: Thousandths = Thousandths(1_000);

/// The maximum p99 of calls at a fixed rate in nanoseconds.
const MAX_P99: u64 = 1_000_000;

/// The maximum memory at rest in bytes.
const MAX_AT_REST: u64 = 20 << 20;

/// The maximum memory of a subject in bytes: what the memory store takes when its table has just grown.
const MAX_PER_SUBJECT: u64 = 105;

const ONE: Thousandths = Thousandths(1_000);

/// What is compared of a sample.
type Figure = fn(&Sample) -> u64;

/// Compares what was measured with the targets. Ratios are medians over the rounds, as a slow round slows both.
pub(super) fn judge(results: &Results, options: &Options) -> Vec<Verdict> {
    let mut verdicts = vec![];
    for scenario in SCENARIOS {
        let max = match (scenario.shape, scenario.load) {
            (Shape::Pipelined, Load::Hot | Load::Many) => MAX_PIPELINED,
            _ => MAX_OTHER,
        };
        let name = scenario.name(options);
        let figures: [(&str, Figure); 2] =
            [("time for each request", nanos_between), ("server's CPU", |it| it.cpu)];
        for (what, figure) in figures {
            // At a fixed rate the time is what it is.
            if scenario.shape == Shape::Arrivals && what != "server's CPU" {
                continue;
            }
            if let Some(measured) = ratio(results, scenario, figure) {
                let what = format!("{name}: {what}, of throttlecrab's");
                verdicts.push(Verdict { what, max, measured });
            }
        }
    }
    verdicts.extend(at_rate(results, options));
    verdicts
}

fn nanos_between(sample: &Sample) -> u64 {
    1_000_000_000 / sample.per_second.max(1)
}

fn samples(results: &Results, scenario: Scenario, peer: Peer) -> Option<&[Sample]> {
    let contender = scenario.protocol.contenders().iter().find(|it| it.peer == peer)?;
    results.get(&(scenario, *contender)).map(Vec::as_slice)
}

/// Ours, of throttlecrab's.
fn ratio(results: &Results, scenario: Scenario, figure: Figure) -> Option<Thousandths> {
    let ours = samples(results, scenario, Peer::Tidegate)?;
    let theirs = samples(results, scenario, Peer::Throttlecrab)?;
    let ratios = ours.iter().zip(theirs);
    let ratios: Option<Vec<_>> =
        ratios.map(|(ours, theirs)| Thousandths::of(figure(ours), figure(theirs))).collect();
    ratios.filter(|it| !it.is_empty()).map(middle)
}

/// Calls of Envoy at a fixed rate.
fn at_rate(results: &Results, options: &Options) -> Option<Verdict> {
    let scenario = Scenario { protocol: Protocol::Grpc, shape: Shape::Arrivals, load: Load::Many };
    let samples = samples(results, scenario, Peer::Tidegate)?;
    let p99 = middle(samples.iter().map(|it| it.p99).collect());
    Some(Verdict {
        what: format!("{}: p99, of 1 ms", scenario.name(options)),
        max: ONE,
        measured: Thousandths::of(p99, MAX_P99)?,
    })
}

/// Our memory.
pub(super) fn judge_memory(footprints: &[Footprint]) -> Vec<Verdict> {
    let ours = footprints.iter().filter(|it| it.peer == Peer::Tidegate);
    let verdicts = |it: &Footprint| {
        [
            ("resident at rest, of 20 MiB", it.at_rest.resident, MAX_AT_REST),
            ("bytes a subject, of 105", it.per_subject(), MAX_PER_SUBJECT),
        ]
    };
    ours.flat_map(verdicts)
        .filter_map(|(what, measured, max)| {
            let measured = Thousandths::of(measured, max)?;
            Some(Verdict { what: what.to_owned(), max: ONE, measured })
        })
        .collect()
}
