//! Writes the tables in Markdown, and judges the targets.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::contender::{
    COUNTER, Contender, GOVERNOR, LOG, THROUGH_LIMITER, THROUGH_OBJECT, TIDEGATE,
};
use super::measure::Footprint;
use super::subjects::Workload;
use super::{Options, Samples};
use crate::Outcome;
use crate::harness::{Thousandths, Verdict, middle};

pub(super) fn head(options: &Options) {
    println!(
        "# Memory\n\nMedians of {} rounds, each of {} checks by subjects of 20 bytes; nanoseconds for \
         the caller, and the ratio to the time of governor in the same round.",
        options.rounds, options.calls,
    );
}

pub(super) fn table<K>(
    samples: &Samples,
    contenders: &[Contender<K>],
    workload: &Workload<K>,
    threads: &[usize],
) {
    let mut text = format!("\n## {}\n\n| |", workload.title);
    for threads in threads {
        let _ = write!(text, " {threads} thread{} | ratio |", if *threads == 1 { "" } else { "s" });
    }
    let _ = write!(text, "\n|---|{}", "---|---|".repeat(threads.len()));
    for one in contenders {
        if samples.get(&(one.name, workload.id, 1)).is_err() {
            continue;
        }
        let _ = write!(text, "\n| {} |", one.name);
        for &threads in threads {
            let (one, governor) =
                ((one.name, workload.id, threads), (GOVERNOR, workload.id, threads));
            let tenths = samples.median(&one, |tenths| *tenths);
            let tenths = tenths.map(|tenths| format!("{}.{}", tenths / 10, tenths % 10));
            let ratio = samples.ratio((&one, &governor), |tenths| *tenths);
            let ratio = ratio.map(|ratio| ratio.to_string());
            let shown = |cell: Outcome<String>| cell.unwrap_or_else(|_| "-".to_owned());
            let _ = write!(text, " {} | {} |", shown(tenths), shown(ratio));
        }
    }
    println!("{text}");
}

pub(super) fn footprints(footprints: &BTreeMap<&'static str, Footprint>) {
    println!(
        "\n## Footprint\n\n| | bytes per subject | allocations in 1,000 checks | longest \
         check |\n|---|---|---|---|"
    );
    for (name, footprint) in footprints {
        let Footprint { bytes_per_subject, allocations, longest } = footprint;
        println!("| {name} | {bytes_per_subject} | {allocations} | {longest:?} |");
    }
}

/// The targets for the time of a check: workload, number of threads, and maximum relative to
/// governor, in thousandths.
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

pub(super) fn judge(
    samples: &Samples,
    footprints: &BTreeMap<&'static str, Footprint>,
) -> Vec<Verdict> {
    let mut verdicts = vec![];
    let mut judge = |what: String, found: Option<Thousandths>, max| {
        verdicts.extend(found.map(|found| Verdict::new(what, found, Thousandths(max))));
    };
    let ratio = |one, other, id, threads| {
        let keys = (&(one, id, threads), &(other, id, threads));
        samples.ratio(keys, |tenths| *tenths).ok()
    };
    for (id, threads, max) in TARGETS {
        let what = format!("{id}, threads: {threads}, to governor");
        judge(what, ratio(TIDEGATE, GOVERNOR, id, threads), max);
    }
    for (name, max) in [(COUNTER, 1_200), (LOG, 3_000)] {
        judge(format!("{name}, to the bucket"), ratio(name, TIDEGATE, "hot", 1), max);
    }
    let whole = |figure: u64| Thousandths(figure.saturating_mul(1_000));
    for (name, max) in [(THROUGH_LIMITER, 5_000), (THROUGH_OBJECT, 10_000)] {
        let what = format!("{name}, more ns than the store's own call");
        judge(what, more(samples, name, TIDEGATE), max);
        let found = footprints.get(name).map(|footprint| whole(footprint.allocations));
        judge(format!("{name}, allocations"), found, 0);
    }
    let ours = footprints.get(TIDEGATE);
    judge("bytes per subject".into(), ours.map(|ours| whole(ours.bytes_per_subject)), 80_000);
    judge("allocations".into(), ours.map(|ours| whole(ours.allocations)), 0);
    let longest = ours.and_then(|ours| u64::try_from(ours.longest.as_micros()).ok());
    judge("longest check, in us".into(), longest.map(whole), 1_000_000);
    verdicts
}

/// Returns the extra time of a check by `one` over a check by `other`, in nanoseconds, for one hot
/// subject on one thread: the median of the differences in all rounds.
fn more(samples: &Samples, one: &'static str, other: &'static str) -> Option<Thousandths> {
    let tenths = |name| samples.get(&(name, "hot", 1)).ok();
    let more =
        tenths(one)?.iter().zip(tenths(other)?).map(|(one, other)| one.saturating_sub(*other));
    Some(Thousandths(middle(more.collect()) * 100))
}
