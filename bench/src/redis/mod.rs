//! The benchmark of `tidegate-redis`: everything in one run, interleaved, on a server of its own.

mod contender;
mod contenders;
pub(crate) mod load;
mod peer;
mod report;
mod restore;
pub(crate) mod server;
mod targets;
mod warmup;

use crate::figures::{self, Sample};
use crate::verdict;
use crate::{Outcome, at_least_one, block_on};
use contender::Id;
use load::{Load, sample};
use server::Server;

type Results = figures::Results<Id>;

/// The callers on the one connection; the first are those whose CPU times are compared.
const CALLERS: [usize; 3] = [64, 1, 512];

/// The decisions in a batch.
const BATCH: usize = 64;

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Calls in each round for each figure.
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    calls: usize,
    /// Subjects that the calls are spread over, in turn; a fiftieth of them for logs of 10,000.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    subjects: usize,
    /// Fail if a target is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Measures and prints. Returns whether all targets are met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    block_on(compare(options))
}

async fn compare(options: &Options) -> Outcome<bool> {
    let server = Server::start().await?;
    let singles = contenders::singles(&server, options)?;
    let batches = contenders::batches(&server, options)?;
    let mut results = Results::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for callers in CALLERS {
            // A caller alone waits for each answer: fewer calls say as much about the time that takes.
            let calls = if callers == 1 { options.calls.div_ceil(4) } else { options.calls };
            for contender in &singles {
                let load = Load { callers, calls };
                results.add(contender.id, callers, sample(&server, contender, load).await?);
            }
            if callers == CALLERS[0] {
                // Next to the single calls that they are compared with.
                let load = Load { callers: 1, calls: options.calls.div_ceil(BATCH) };
                for contender in &batches {
                    results.add(contender.id, 1, sample(&server, contender, load).await?);
                }
            }
        }
    }
    print!("{}", report::head(&server, options));
    for callers in CALLERS {
        print!("{}", report::singles(&results, &singles, callers)?);
    }
    print!("{}", report::batches(&results, &batches)?);
    print!("{}", report::memory(&results, &singles)?);
    let verdicts = targets::judge(&results)?;
    print!("{}", report::targets(&verdicts));
    Ok(verdict::are_met(&verdicts))
}
