//! The benchmark of `tidegate-memory`: beside other limiters for one process, in one run, interleaved.

mod contender;
mod measure;
mod report;
mod subjects;

use std::collections::BTreeMap;

use contender::{Contender, contenders};
use measure::{Footprint, Sample, footprint, time};
use subjects::{Size, Workload, workloads};

use crate::{Outcome, at_least_one};

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Subjects in the largest sets.
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_one)]
    subjects: usize,
    /// Checks in each round for each figure.
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_one)]
    calls: usize,
    /// Only those whose names contain one of these, and governor.
    #[arg(long)]
    only: Vec<String>,
    /// Only these workloads.
    #[arg(long)]
    workload: Vec<String>,
    /// Leave out what several threads do.
    #[arg(long)]
    single: bool,
    /// Fail if a wanted ratio is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

/// What was measured, by contender, workload and number of threads.
type Samples = BTreeMap<(&'static str, &'static str, usize), Vec<Sample>>;

/// Measures and prints; says whether all wanted ratios are met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let size = Size { subjects: options.subjects.try_into()?, calls: options.calls.try_into()? };
    let mut field = contenders();
    let asked = |name: &str| options.only.iter().any(|part| name.contains(part));
    field.retain(|one| {
        options.only.is_empty() || one.name == contender::GOVERNOR || asked(one.name)
    });
    let mut workloads = workloads(size);
    let insert = workloads.iter().position(|workload| workload.id == "insert");
    let footprints = match insert.and_then(|at| workloads.get(at)) {
        Some(insert) => footprints(&field, insert)?,
        None => BTreeMap::new(),
    };
    workloads.retain(|one| {
        options.workload.is_empty() || options.workload.iter().any(|id| id == one.id)
    });
    let threads = if options.single { vec![1] } else { thread_counts() };
    let mut samples = Samples::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for workload in &workloads {
            for &threads in &threads {
                for one in field.iter().filter(|one| one.keyed || workload.id == "hot") {
                    let sample = time(one, workload, threads)?;
                    samples.entry((one.name, workload.id, threads)).or_default().push(sample);
                }
            }
        }
    }
    print!("{}", report::head(options));
    for workload in &workloads {
        print!("{}", report::table(&samples, &field, workload, &threads));
    }
    print!("{}", report::footprints(&footprints));
    let (text, all_met) = report::wanted(&samples, &footprints);
    print!("{text}");
    Ok(all_met)
}

fn footprints(
    field: &[Contender],
    insert: &Workload,
) -> Outcome<BTreeMap<&'static str, Footprint>> {
    let keyed = field.iter().filter(|one| one.keyed);
    keyed.map(|one| Ok((one.name, footprint(one, insert)?))).collect()
}

/// One, two, and as many as there are processors.
fn thread_counts() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, 2, all];
    counts.sort_unstable();
    counts.dedup();
    counts
}
