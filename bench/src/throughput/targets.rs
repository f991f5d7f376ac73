//! Targets: ratios of two ways.

use super::Results;
use super::load::{Load, Sample};
use super::way::Way;
use crate::figures::{Thousandths, middle};

/// A target, and what was measured.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) what: &'static str,
    pub(crate) max: Thousandths,
    pub(crate) measured: Thousandths,
}

impl Verdict {
    pub(crate) fn is_met(&self) -> bool {
        self.measured <= self.max
    }
}

/// One figure of a way, relative to that of another.
struct Target {
    what: &'static str,
    max: u64,
    load: Load,
    callers: usize,
    /// The way that is judged, and the one it is compared with.
    ways: (Way, Way),
    figure: fn(&Sample) -> u64,
}

const TARGETS: [Target; 8] = [
    Target {
        what: "512 callers, coalesced: time for each decision, to single calls",
        max: 555,
        load: Load::Cold,
        callers: 512,
        ways: (Way::Coalesced, Way::Single),
        figure: nanos_between,
    },
    Target {
        what: "one caller, coalesced: p50, to single calls",
        max: 1_050,
        load: Load::Cold,
        callers: 1,
        ways: (Way::Coalesced, Way::Single),
        figure: |it| it.p50,
    },
    Target {
        what: "64 callers, coalesced: p99, to single calls",
        max: 1_000,
        load: Load::Cold,
        callers: 64,
        ways: (Way::Coalesced, Way::Single),
        figure: |it| it.p99,
    },
    Target {
        what: "one hot subject, leased: the server's CPU, to `INCR`",
        max: 20,
        load: Load::Hot,
        callers: 512,
        ways: (Way::Leased, Way::Incr),
        figure: |it| it.server,
    },
    Target {
        what: "Zipf, leased and coalesced: the server's CPU, to `INCR`",
        max: 500,
        load: Load::Zipf,
        callers: 512,
        ways: (Way::LeasedCoalesced, Way::Incr),
        figure: |it| it.server,
    },
    Target {
        what: "cold subjects, leased: time for each decision of 512 callers, to single calls",
        max: 1_050,
        load: Load::Cold,
        callers: 512,
        ways: (Way::Leased, Way::Single),
        figure: nanos_between,
    },
    Target {
        what: "cold subjects, leased: p50 of one caller, to single calls",
        max: 1_050,
        load: Load::Cold,
        callers: 1,
        ways: (Way::Leased, Way::Single),
        figure: |it| it.p50,
    },
    Target {
        what: "cold subjects, leased: the client's CPU, to single calls",
        max: 1_050,
        load: Load::Cold,
        callers: 512,
        ways: (Way::Leased, Way::Single),
        figure: |it| it.client,
    },
];

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
        Some(Verdict { what, max: Thousandths(*max), measured })
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
