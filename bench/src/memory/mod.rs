//! The benchmark of `tidegate-memory`: beside other limiters for one process, in one run, interleaved.

mod baseline;
mod contender;
mod measure;
mod plot;
mod report;
mod scale;
mod subjects;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use contender::{Contender, contenders, of_numbers};
use measure::{Footprint, Sample, footprint, time};
use subjects::{Size, Workload, numbered, workloads};

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
    /// Measure one thread only.
    #[arg(long)]
    single: bool,
    /// Number of subjects for the measurement of our store alone, as they come and expire. 0 omits it.
    #[arg(long, default_value_t = 10_000_000)]
    many: u64,
    /// A file to draw the plot of the times in, as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Fail if a target is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

/// What was measured, by contender, workload and number of threads.
type Samples = BTreeMap<(&'static str, &'static str, usize), Vec<Sample>>;

/// Measures and prints. Returns whether all targets are met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let size = Size { subjects: options.subjects.try_into()?, calls: options.calls.try_into()? };
    let mut contenders = contenders();
    let asked = |name: &str| options.only.iter().any(|part| name.contains(part));
    contenders.retain(|one| {
        options.only.is_empty() || one.name == contender::GOVERNOR || asked(one.name)
    });
    let mut numbers = of_numbers();
    numbers.retain(|one| contenders.iter().any(|other| other.name == one.name));
    let mut workloads = workloads(size);
    let insert = workloads.iter().position(|workload| workload.id == "insert");
    let footprints = match insert.and_then(|at| workloads.get(at)) {
        Some(insert) => footprints(&contenders, insert)?,
        None => BTreeMap::new(),
    };
    let is_asked =
        |id: &str| options.workload.is_empty() || options.workload.iter().any(|one| one == id);
    workloads.retain(|one| is_asked(one.id));
    let numbered = Some(numbered(size)).filter(|one| is_asked(one.id));
    let threads = if options.single { vec![1] } else { thread_counts() };
    let mut samples = Samples::new();
    print!("{}", report::head(options));
    for workload in &workloads {
        measure_all(&mut samples, &contenders, workload, options.rounds, &threads)?;
        print!("{}", report::table(&samples, &contenders, workload, &threads));
    }
    if let Some(workload) = &numbered {
        measure_all(&mut samples, &numbers, workload, options.rounds, &threads)?;
        print!("{}", report::table(&samples, &numbers, workload, &threads));
    }
    print!("{}", report::footprints(&footprints));
    let (text, mut all_met) = report::targets(&samples, &footprints);
    print!("{text}");
    if options.many > 0 {
        let (text, met) = scale::run(options.many, options.many.div_ceil(100), options.rounds)?;
        print!("{text}");
        all_met &= met;
    }
    if let Some(path) = &options.plot {
        let titles: Vec<_> = workloads.iter().map(|one| (one.id, one.title.as_str())).collect();
        fs::write(path, plot::draw(&samples, &contenders, &titles))?;
    }
    Ok(all_met)
}

/// In each round one after another, so that what slows a round slows all.
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
    // Where subjects are to be new, each round begins with none.
    let are_new = workload.known.is_empty();
    let built = if are_new { vec![] } else { keyed().map(build).collect::<Outcome<Vec<_>>>()? };
    let rounds = threads.iter().flat_map(|&threads| std::iter::repeat_n(threads, rounds));
    for threads in rounds {
        for (place, one) in keyed().enumerate() {
            let fresh = if are_new { Some(build(one)?) } else { None };
            let limits = fresh.as_ref().or_else(|| built.get(place));
            if let Some(limits) = limits {
                let sample = time(&**limits, &workload.calls, threads)?;
                samples.entry((one.name, workload.id, threads)).or_default().push(sample);
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

/// One, two, and as many as there are processors.
fn thread_counts() -> Vec<usize> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = vec![1, 2, all];
    counts.sort_unstable();
    counts.dedup();
    counts
}
