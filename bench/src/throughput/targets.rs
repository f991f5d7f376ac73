//! Defines the targets. Each target limits a figure of one way relative to another way.

use super::Results;
use super::load::{Load, Sample};
use super::way::Way;
use crate::harness::{Thousandths, Verdict};

/// The maximum of a figure of one way, relative to the same figure of another way.
struct Target {
    what: &'static str,
    max: Thousandths,
    load: Load,
    callers: usize,
    /// The way that is judged, and the way with which it is compared.
    ways: (Way, Way),
    figure: Figure,
}

type Figure = fn(&Sample) -> u64;

/// Creates a target. `max` is in thousandths.
const fn target(
    what: &'static str,
    max: u64,
    (load, callers): (Load, usize),
    ways: (Way, Way),
    figure: Figure,
) -> Target {
    Target { what, max: Thousandths(max), load, callers, ways, figure }
}

#[rustfmt::skip]
const TARGETS: [Target; 8] = {
    use Load::{Cold, Hot, Zipf};
    use Way::{Coalesced, Incr, Leased, LeasedCoalesced, Single};
    [
        target("512 callers, coalesced: time for each decision, to single calls",
            555, (Cold, 512), (Coalesced, Single), nanos_between),
        target("one caller, coalesced: p50, to single calls",
            1_050, (Cold, 1), (Coalesced, Single), |sample| sample.p50),
        target("64 callers, coalesced: p99, to single calls",
            1_000, (Cold, 64), (Coalesced, Single), |sample| sample.p99),
        target("one hot subject, leased: the server's CPU, to `INCR`",
            20, (Hot, 512), (Leased, Incr), |sample| sample.server),
        target("Zipf, leased and coalesced: the server's CPU, to `INCR`",
            500, (Zipf, 512), (LeasedCoalesced, Incr), |sample| sample.server),
        target("cold subjects, leased: time for each decision of 512 callers, to single calls",
            1_050, (Cold, 512), (Leased, Single), nanos_between),
        target("cold subjects, leased: p50 of one caller, to single calls",
            1_050, (Cold, 1), (Leased, Single), |sample| sample.p50),
        target("cold subjects, leased: the client's CPU, to single calls",
            1_050, (Cold, 512), (Leased, Single), |sample| sample.client),
    ]
};

fn nanos_between(sample: &Sample) -> u64 {
    1_000_000_000 / sample.per_second.max(1)
}

pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    let verdict = |target: &Target| {
        let Target { what, max, load, callers, ways: (one, other), figure } = target;
        let keys = (&(*load, *one, *callers), &(*load, *other, *callers));
        Some(Verdict::new(*what, results.ratio(keys, figure).ok()?, *max))
    };
    TARGETS.iter().filter_map(verdict).collect()
}
