//! The targets: bounds on the cost of Tidegate's scripts, relative to commands and scripts of other
//! projects.

use super::contender::{Answers, Id, Name, Way};
use super::{BATCH, CALLERS, Results};
use crate::Outcome;
use crate::harness::{Cost, Thousandths, Verdict};

/// An algorithm of Tidegate, and a contender that stores the same state in another form.
pub(crate) struct Pair {
    pub(crate) ours: Name,
    pub(crate) other: Name,
    /// The maximum CPU time of the server for `ours`, relative to `other`.
    max: Option<Thousandths>,
}

pub(crate) const PAIRS: [Pair; 6] = [
    pair(Name::SlidingCounter, Name::HashSlidingCounter, Some(800)),
    pair(Name::TokenBucket, Name::HashTokenBucket, Some(700)),
    pair(Name::TokenBucket, Name::Gcra, Some(650)),
    pair(Name::IntervalBucket, Name::HashTokenBucket, Some(700)),
    pair(Name::Log100, Name::SortedSet100, Some(600)),
    pair(Name::Log10000, Name::SortedSet10000, None),
];

/// The algorithms whose batches do not need the general script.
const IN_BATCHES: [Name; 3] = [Name::FixedWindow, Name::SlidingCounter, Name::TokenBucket];

/// Returns the maximum CPU time of a decision in a batch, relative to a single decision.
const fn max_in_batch(answers: Answers) -> Thousandths {
    match answers {
        Answers::Allowed => Thousandths(450),
        Answers::Denied => Thousandths(300),
    }
}

/// The maximum rate of single calls by 512 callers, relative to the rate of coalesced calls.
const MAX_RATE_AT_512: Thousandths = Thousandths(555);
const MAX_LATENCY_OF_ONE: Thousandths = Thousandths(1_050);
const MAX_P99_AT_64: Thousandths = Thousandths(1_000);

/// The maximum memory of a log of 10,000 requests, relative to the memory of a sorted set.
const MAX_MEMORY: Thousandths = Thousandths(150);

const fn pair(ours: Name, other: Name, max: Option<u64>) -> Pair {
    let max = match max {
        Some(max) => Some(Thousandths(max)),
        None => None,
    };
    Pair { ours, other, max }
}

/// Returns the server's CPU time for `part`, relative to `whole`.
pub(crate) fn cpu_ratio(
    results: &Results,
    part: (Id, usize),
    whole: (Id, usize),
) -> Outcome<Thousandths> {
    results.ratio((&part, &whole), |sample| sample.cost.cpu)
}

pub(crate) fn judge(results: &Results) -> Outcome<Vec<Verdict>> {
    let mut verdicts = vec![];
    for answers in [Answers::Allowed, Answers::Denied] {
        let id = |name| Id { name, answers, way: Way::Single };
        for Pair { ours: tidegate, other, max } in &PAIRS {
            let Some(max) = *max else { continue };
            let measured =
                cpu_ratio(results, (id(*tidegate), CALLERS[0]), (id(*other), CALLERS[0]))?;
            verdicts.push(Verdict::new(format!("{tidegate} / {other}, {answers}"), measured, max));
        }
        for name in IN_BATCHES {
            let batch = Id { way: Way::Batch, ..id(name) };
            let what = format!("{name} in batches of {BATCH} / single, {answers}");
            let measured = cpu_ratio(results, (batch, 1), (id(name), CALLERS[0]))?;
            verdicts.push(Verdict::new(what, measured, max_in_batch(answers)));
        }
        let single = id(Name::TokenBucket);
        let coalesced = Id { way: Way::Coalesced, ..single };
        for (what, max, (one, other), callers, of_cost) in [
            (
                "single / coalesced calls a second of 512 callers",
                MAX_RATE_AT_512,
                (single, coalesced),
                512,
                (|cost| cost.per_second) as fn(&Cost) -> u64,
            ),
            (
                "coalesced / single, p50 of one caller",
                MAX_LATENCY_OF_ONE,
                (coalesced, single),
                1,
                |cost| cost.p50,
            ),
            (
                "coalesced / single, p99 of 64 callers",
                MAX_P99_AT_64,
                (coalesced, single),
                64,
                |cost| cost.p99,
            ),
        ] {
            let figure = |id| results.median(&(id, callers), |sample| of_cost(&sample.cost));
            let measured = Thousandths::ratio(figure(one)?, figure(other)?).ok_or("no calls")?;
            let what = format!("{}: {what}, {answers}", single.name);
            verdicts.push(Verdict::new(what, measured, max));
        }
    }
    let (log, other) = (Name::Log10000, Name::SortedSet10000);
    let measured = memory_ratio(results, log, other)?;
    verdicts.push(Verdict::new(format!("memory: {log} / {other}"), measured, MAX_MEMORY));
    Ok(verdicts)
}

/// Returns the memory of `ours`, relative to the memory of `other`. Logs are measured when they are
/// full.
pub(crate) fn memory_ratio(results: &Results, ours: Name, other: Name) -> Outcome<Thousandths> {
    let bytes = |name| memory(results, name);
    let ratio = Thousandths::ratio(bytes(ours)?, bytes(other)?);
    ratio.ok_or_else(|| format!("{other} takes no memory").into())
}

/// Returns the bytes of a key. A log is measured after denied calls, because it is then full.
pub(crate) fn memory(results: &Results, name: Name) -> Outcome<u64> {
    let is_log =
        matches!(name, Name::Log100 | Name::SortedSet100 | Name::Log10000 | Name::SortedSet10000);
    let answers = if is_log { Answers::Denied } else { Answers::Allowed };
    let id = Id { name, answers, way: Way::Single };
    results.median(&(id, CALLERS[0]), |sample| sample.memory)
}
