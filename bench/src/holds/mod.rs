//! Measures calls with an id, and holds with their settlement, on one Redis. Compares them with
//! calls without an id.

mod load;
mod scenario;

use load::Sizes;
use scenario::{Form, SCENARIOS};

use crate::harness::{Cost, Samples, Server, Thousandths, Verdict, finish, rounds};
use crate::{Outcome, at_least_one, block_on};

/// The maximum CPU time of a call with an id, relative to a call without an id.
const MAX_WITH_ID: Thousandths = Thousandths(1_600);

/// The maximum CPU time of a hold and its settlement together, relative to an acquire.
const MAX_OF_HOLD: Thousandths = Thousandths(2_500);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Number of calls in each measurement.
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    calls: usize,
    /// Number of subjects, which the calls use in turn.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    subjects: usize,
    /// Part of the name of the policies to measure. Default: all policies.
    #[arg(long, default_value = "")]
    only: String,
    /// Number of holds that are made before each measurement and stay open.
    #[arg(long, default_value_t = 0)]
    open: usize,
    /// Number of callers on the connection.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    callers: usize,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

/// Returns `false` if `--check` is set and a target is missed.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    block_on(compare(options))
}

async fn compare(options: &Options) -> Outcome<bool> {
    let server = Server::start().await?;
    let wanted = || {
        let scenarios = SCENARIOS.iter().enumerate();
        scenarios.filter(|(_, scenario)| scenario.name.contains(&options.only))
    };
    if wanted().next().is_none() {
        return Err(format!("no name of policies contains {:?}", options.only).into());
    }
    let mut samples = Samples::new();
    for _ in rounds(options.rounds) {
        for (number, scenario) in wanted() {
            for form in Form::ALL {
                let cost = load::sample(&server, scenario, form, options).await?;
                samples.add((number, form), cost);
            }
        }
    }
    let Options { rounds, calls, subjects, open, callers, .. } = options;
    print!(
        "{version}, over TCP on this machine. Medians of {rounds} interleaved rounds of {calls} calls (or of as many \
         holds, each with its settlement) by {callers} callers on one connection, after a call per subject; {subjects} \
         subjects in turn, each id once; {open} other holds are open. CPU is the user and system time of the server; \
         ratios are medians of the rounds' ratios.\n\n\
         | policies | acquire, µs | with an id | hold, settlement | bytes of the id's key, of the hold's, once settled |\n\
         |---|--:|--:|--:|--:|\n",
        version = server.redis.version(),
    );
    let mut verdicts = vec![];
    for (number, scenario) in wanted() {
        let name = scenario.name;
        let cpu = |cost: &Cost| cost.cpu;
        let plain = (number, Form::Plain);
        let with_id = samples.ratio((&(number, Form::WithId), &plain), cpu)?;
        let hold = samples.ratio((&(number, Form::HoldAndSettlement), &plain), cpu)?;
        let Sizes { id, held, settled } = load::sizes(&server, scenario).await?;
        let plain = Thousandths(samples.median(&plain, cpu)?);
        println!("| {name} | {plain} | × {with_id} | × {hold} | {id}, {held}, {settled} |");
        verdicts.extend([
            Verdict::new(format!("{name}: with an id / without"), with_id, MAX_WITH_ID),
            Verdict::new(format!("{name}: hold and settlement / acquire"), hold, MAX_OF_HOLD),
        ]);
    }
    Ok(finish(&verdicts, options.check))
}
