//! Compares `tidegate-memory` with other limiters for one process, in one run.

mod baseline;
mod compare;
mod contender;
mod measure;
mod report;
pub(crate) mod scale;
mod subjects;

use std::collections::BTreeMap;

pub(crate) use compare::compare;
use contender::{Contender, contenders, number_contenders};
use measure::{Footprint, footprint, time};
use subjects::{Size, Workload, numbered, workloads};

use crate::harness::{self, finish};
use crate::{Outcome, at_least_one};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Number of subjects in the largest workloads.
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_one)]
    subjects: usize,
    /// Number of checks in each measurement.
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_one)]
    calls: usize,
    /// Part of the name of a limiter to measure, in addition to governor. The option can be
    /// repeated. Default: all limiters.
    #[arg(long)]
    only: Vec<String>,
    /// Workload to measure. The option can be repeated. Default: all workloads.
    #[arg(long)]
    workload: Vec<String>,
    /// Measure one thread only.
    #[arg(long)]
    single: bool,
    /// Number of subjects with which the memory store is measured alone, while they arrive and
    /// recover; 0 skips this measurement.
    #[arg(long, default_value_t = 10_000_000)]
    many: u64,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

/// The times of a check in tenths of a nanosecond, by contender, workload and number of threads.
type Samples = harness::Samples<(&'static str, &'static str, usize), u64>;

/// Returns `false` if `--check` is set and a target is missed.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let size = Size { subjects: options.subjects.try_into()?, calls: options.calls.try_into()? };
    let mut contenders = contenders();
    let is_wanted = |name: &str| options.only.iter().any(|part| name.contains(part));
    contenders.retain(|one| {
        options.only.is_empty() || one.name == contender::GOVERNOR || is_wanted(one.name)
    });
    let mut numbers = number_contenders();
    numbers.retain(|one| contenders.iter().any(|other| other.name == one.name));
    let mut workloads = workloads(size);
    let insert = workloads.iter().find(|workload| workload.id == "insert");
    let footprints = footprints(&contenders, insert.ok_or("no workload of new subjects")?)?;
    let is_wanted =
        |id: &str| options.workload.is_empty() || options.workload.iter().any(|one| one == id);
    workloads.retain(|one| is_wanted(one.id));
    let numbered = Some(numbered(size)).filter(|one| is_wanted(one.id));
    let threads = if options.single { vec![1] } else { thread_counts() };
    let mut samples = Samples::new();
    report::head(options);
    for workload in &workloads {
        measure_all(&mut samples, &contenders, workload, options.rounds, &threads)?;
        report::table(&samples, &contenders, workload, &threads);
    }
    if let Some(workload) = &numbered {
        measure_all(&mut samples, &numbers, workload, options.rounds, &threads)?;
        report::table(&samples, &numbers, workload, &threads);
    }
    report::footprints(&footprints);
    let mut verdicts = report::judge(&samples, &footprints);
    if options.many > 0 {
        let flooded = options.many.div_ceil(100);
        verdicts.extend(scale::run(options.many, flooded, options.rounds)?);
    }
    Ok(finish(&verdicts, options.check))
}

/// Measures all contenders in each round, so that a slow round affects all of them.
fn measure_all<K: Clone + Sync>(
    samples: &mut Samples,
    contenders: &[Contender<K>],
    workload: &Workload<K>,
    rounds: usize,
    threads: &[usize],
) -> Outcome<()> {
    eprintln!("{}", workload.title);
    let keyed = || contenders.iter().filter(|one| one.keyed || workload.id == "hot");
    let build = |one: &Contender<K>| {
        let limits = (one.build)(workload.setup)?;
        limits.pass(&workload.known);
        Outcome::Ok(limits)
    };
    // If all subjects must be new, each measurement begins with an empty limiter.
    let are_new = workload.known.is_empty();
    let built = if are_new { vec![] } else { keyed().map(build).collect::<Outcome<Vec<_>>>()? };
    let rounds = threads.iter().flat_map(|&threads| std::iter::repeat_n(threads, rounds));
    for threads in rounds {
        for (place, one) in keyed().enumerate() {
            let fresh = if are_new { Some(build(one)?) } else { None };
            let limits = fresh.as_ref().or_else(|| built.get(place));
            if let Some(limits) = limits {
                let sample = time(&**limits, &workload.calls, threads)?;
                samples.add((one.name, workload.id, threads), sample);
            }
        }
    }
    Ok(())
}

fn footprints(
    contenders: &[Contender<String>],
    insert: &Workload<String>,
) -> Outcome<BTreeMap<&'static str, Footprint>> {
    let keyed = contenders.iter().filter(|one| one.keyed);
    keyed.map(|one| Ok((one.name, footprint(one, insert)?))).collect()
}

fn thread_counts() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, 2, all];
    counts.sort_unstable();
    counts.dedup();
    counts
}
