//! What was measured, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::contender::{
    COUNTER, Contender, GOVERNOR, LOG, THROUGH_LIMITER, THROUGH_OBJECT, TIDEGATE,
};
use super::measure::Footprint;
use super::subjects::Workload;
use super::{Options, Samples};
use crate::figures::{Thousandths, middle};

pub(crate) fn head(options: &Options) -> String {
    format!(
        "# Memory\n\nMedians of {} rounds, each of {} checks by subjects of 20 bytes; nanoseconds for \
         the caller, and as a multiple of what governor took in the same round.\n",
        options.rounds, options.calls,
    )
}

pub(crate) fn table<K>(
    samples: &Samples,
    contenders: &[Contender<K>],
    workload: &Workload<K>,
    threads: &[usize],
) -> String {
    let mut text = format!("\n## {}\n\n| |", workload.title);
    for threads in threads {
        let _ = write!(text, " {threads} thread{} | ratio |", if *threads == 1 { "" } else { "s" });
    }
    let _ = writeln!(text, "\n|---|{}", "---|---|".repeat(threads.len()));
    for one in contenders {
        let Some(_) = samples.get(&(one.name, workload.id, 1)) else { continue };
        let _ = write!(text, "| {} |", one.name);
        for &threads in threads {
            let nanos = nanos(samples, one.name, workload.id, threads);
            let ratio = ratio(samples, one.name, GOVERNOR, workload.id, threads);
            let _ = write!(text, " {nanos} | {} |", show(ratio));
        }
        text.push('\n');
    }
    text
}

pub(crate) fn footprints(footprints: &BTreeMap<&'static str, Footprint>) -> String {
    let mut text =
        "\n## Footprint\n\n| | bytes per subject | allocations in 1,000 checks | longest \
                    check |\n|---|---|---|---|\n"
            .to_owned();
    for (name, one) in footprints {
        let Footprint { bytes_per_subject, allocations, longest } = one;
        let _ = writeln!(text, "| {name} | {bytes_per_subject} | {allocations} | {longest:?} |");
    }
    text
}

/// Targets: workload, number of threads, maximum ratio in thousandths.
const TARGETS: [(&str, usize, u64); 8] = [
    ("hot", 1, 600),
    ("hot", 2, 700),
    ("uniform", 1, 400),
    ("uniform", 2, 400),
    ("zipf", 1, 450),
    ("zipf", 2, 450),
    ("insert", 1, 400),
    ("insert", 2, 400),
];

pub(crate) fn targets(
    samples: &Samples,
    footprints: &BTreeMap<&'static str, Footprint>,
) -> (String, bool) {
    let (mut text, mut all_met) = ("\n## Targets\n\n".to_owned(), true);
    let mut judge = |what: String, found: Option<u64>, max: u64, show: fn(u64) -> String| {
        let Some(found) = found else { return };
        let met = found <= max;
        all_met &= met;
        let verdict = if met { "met" } else { "NOT MET" };
        let _ = writeln!(text, "- {verdict}: {what}: {} of at most {}", show(found), show(max));
    };
    let times = |thousandths: u64| Thousandths(thousandths).to_string();
    for (id, threads, max) in TARGETS {
        let found = ratio(samples, TIDEGATE, GOVERNOR, id, threads).map(|ratio| ratio.0);
        judge(format!("{id}, threads: {threads}, to governor"), found, max, times);
    }
    for (name, max) in [(COUNTER, 1_200), (LOG, 3_000)] {
        let found = ratio(samples, name, TIDEGATE, "hot", 1).map(|ratio| ratio.0);
        judge(format!("{name}, to the bucket"), found, max, times);
    }
    let tenths = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
    for (name, max) in [(THROUGH_LIMITER, 50), (THROUGH_OBJECT, 100)] {
        let found = more(samples, name, TIDEGATE, "hot");
        judge(format!("{name}, more ns than the store's own call"), found, max, tenths);
        let found = footprints.get(name).map(|footprint| footprint.allocations);
        judge(format!("{name}, allocations"), found, 0, |n| n.to_string());
    }
    let ours = footprints.get(TIDEGATE);
    judge("bytes per subject".into(), ours.map(|f| f.bytes_per_subject), 80, |n| n.to_string());
    judge("allocations".into(), ours.map(|f| f.allocations), 0, |n| n.to_string());
    let longest = ours.and_then(|f| u64::try_from(f.longest.as_micros()).ok());
    judge("longest check in us".into(), longest, 1_000, |n| n.to_string());
    (text, all_met)
}

fn nanos(samples: &Samples, name: &'static str, id: &'static str, threads: usize) -> String {
    let tenths = median(samples, name, id, threads);
    tenths.map_or_else(|| "-".to_owned(), |tenths| format!("{}.{}", tenths / 10, tenths % 10))
}

/// In tenths of a nanosecond.
pub(super) fn median(
    samples: &Samples,
    name: &'static str,
    id: &'static str,
    threads: usize,
) -> Option<u64> {
    let all: Vec<u64> =
        samples.get(&(name, id, threads))?.iter().map(|sample| sample.tenths).collect();
    (!all.is_empty()).then(|| middle(all))
}

/// The median of the rounds' ratios, as what slows a round slows both.
fn ratio(
    samples: &Samples,
    one: &'static str,
    other: &'static str,
    id: &'static str,
    threads: usize,
) -> Option<Thousandths> {
    let (ones, others) = (samples.get(&(one, id, threads))?, samples.get(&(other, id, threads))?);
    let ratios: Option<Vec<_>> =
        ones.iter().zip(others).map(|(a, b)| Thousandths::of(a.tenths, b.tenths)).collect();
    ratios.filter(|ratios| !ratios.is_empty()).map(middle)
}

/// How many tenths of a nanosecond more the one took than the other, on one thread: the median of the
/// rounds' differences.
fn more(
    samples: &Samples,
    one: &'static str,
    other: &'static str,
    id: &'static str,
) -> Option<u64> {
    let (ones, others) = (samples.get(&(one, id, 1))?, samples.get(&(other, id, 1))?);
    let more = ones.iter().zip(others).map(|(a, b)| a.tenths.saturating_sub(b.tenths));
    Some(middle(more.collect()))
}

fn show(ratio: Option<Thousandths>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string())
}
