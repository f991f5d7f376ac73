//! Targets: ratios of two ways.

use super::Results;
use super::load::{Load, Sample};
use super::way::Way;
use crate::figures::{Thousandths, middle};
use crate::verdict::Verdict;

/// One figure of a way, relative to that of another.
struct Target {
    what: &'static str,
    max: Thousandths,
    load: Load,
    callers: usize,
    /// The way that is judged, and the one it is compared with.
    ways: (Way, Way),
    figure: Figure,
}

type Figure = fn(&Sample) -> u64;

/// At most these thousandths of the other way's figure.
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
            1_050, (Cold, 1), (Coalesced, Single), |it| it.p50),
        target("64 callers, coalesced: p99, to single calls",
            1_000, (Cold, 64), (Coalesced, Single), |it| it.p99),
        target("one hot subject, leased: the server's CPU, to `INCR`",
            20, (Hot, 512), (Leased, Incr), |it| it.server),
        target("Zipf, leased and coalesced: the server's CPU, to `INCR`",
            500, (Zipf, 512), (LeasedCoalesced, Incr), |it| it.server),
        target("cold subjects, leased: time for each decision of 512 callers, to single calls",
            1_050, (Cold, 512), (Leased, Single), nanos_between),
        target("cold subjects, leased: p50 of one caller, to single calls",
            1_050, (Cold, 1), (Leased, Single), |it| it.p50),
        target("cold subjects, leased: the client's CPU, to single calls",
            1_050, (Cold, 512), (Leased, Single), |it| it.client),
    ]
};

fn nanos_between(sample: &Sample) -> u64 {
    1_000_000_000 / sample.per_second.max(1)
}

/// Compares what was measured with its targets. Ratios are medians over the rounds, as a slow round slows both.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    TARGETS.iter().filter_map(|target| target.verdict(results)).collect()
}

impl Target {
    fn verdict(&self, results: &Results) -> Option<Verdict> {
        let Self { what, max, load, callers, ways: (one, other), figure } = self;
        let of = |way: &Way| results.get(&(*load, *way, *callers));
        let ratios = of(one)?.iter().zip(of(other)?);
        let ratios: Vec<_> =
            ratios.filter_map(|(one, other)| Thousandths::of(figure(one), figure(other))).collect();
        let measured = (!ratios.is_empty()).then(|| middle(ratios))?;
        Some(Verdict { what: (*what).to_owned(), max: *max, measured })
    }
}

/// The median of a figure; `None` if it was not measured.
pub(crate) fn median(
    results: &Results,
    key: (Load, Way, usize),
    figure: fn(&Sample) -> u64,
) -> Option<u64> {
    results.get(&key).map(|samples| middle(samples.iter().map(figure).collect()))
}
