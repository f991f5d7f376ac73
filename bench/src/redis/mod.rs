//! Compares the scripts of `tidegate-redis` with plain commands and with scripts of other projects,
//! on one Redis.

mod compare;
mod contender;
mod contenders;
mod peer;
mod report;
mod restore;
mod targets;
mod warmup;

use std::sync::Arc;

use crate::harness::{Cost, Samples, Server, drive, finish, measure, rounds};
use crate::{Outcome, at_least_one, block_on};
pub(crate) use compare::compare;
use contender::{Answers, Contender, Id};
use restore::restore;

/// The numbers of callers on the one connection. The targets for CPU times apply to the first
/// number.
const CALLERS: [usize; 3] = [64, 1, 512];

const BATCH: usize = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Number of calls in each measurement.
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    calls: usize,
    /// Number of subjects, which the calls use in turn. Logs of 10,000 have a fiftieth of the
    /// subjects.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    subjects: usize,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    cost: Cost,
    /// The bytes of a key.
    memory: u64,
}

type Results = Samples<(Id, usize), Sample>;

/// Returns `false` if `--check` is set and a target is missed.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    block_on(run_async(options))
}

async fn run_async(options: &Options) -> Outcome<bool> {
    let server = Server::start().await?;
    let singles = contenders::singles(&server, options)?;
    let batches = contenders::batches(&server, options)?;
    let mut results = Results::new();
    for _ in rounds(options.rounds) {
        for callers in CALLERS {
            // A single caller waits for each answer, so a quarter of the calls is enough.
            let calls = if callers == 1 { options.calls.div_ceil(4) } else { options.calls };
            for contender in &singles {
                let sample = sample(&server, contender, callers, calls).await?;
                results.add((contender.id, callers), sample);
            }
            if callers == CALLERS[0] {
                // Batches are measured directly after the single calls with which they are
                // compared.
                for contender in &batches {
                    let calls = options.calls.div_ceil(BATCH);
                    results.add((contender.id, 1), sample(&server, contender, 1, calls).await?);
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
    Ok(finish(&targets::judge(&results)?, options.check))
}

/// Measures a contender once, after one call per subject to warm up.
async fn sample(
    server: &Server,
    contender: &Arc<Contender>,
    callers: usize,
    calls: usize,
) -> Outcome<Sample> {
    restore(server, contender).await?;
    let decisions = contender.decisions();
    drive(contender, callers, 0..contender.subjects.div_ceil(decisions)).await?;
    let (cost, allowed) = measure(server, contender, callers, 0..calls, decisions).await?;
    expect(contender, allowed, calls * decisions)?;
    let key = contender.key(&contender.subject(0));
    Ok(Sample { cost, memory: server.memory_of(key).await?.unwrap_or_default() })
}

/// Returns an error if the decisions do not have the outcome that the table names.
fn expect(contender: &Contender, allowed: usize, decisions: usize) -> Outcome<()> {
    let is_expected = match contender.id.answers {
        Answers::Allowed => allowed == decisions,
        // The server allows a few calls when a window ends or a record leaves a log.
        Answers::Denied => allowed <= decisions / 10,
    };
    if is_expected {
        return Ok(());
    }
    let (name, answers) = (contender.id.name, contender.id.answers);
    Err(format!("{name}, {answers}: {allowed} of {decisions} were allowed").into())
}
