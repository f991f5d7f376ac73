//! Calls with an id, and holds with their settlement, on one Redis, beside calls without.

mod load;
mod scenario;

use load::Sizes;
use scenario::{Form, SCENARIOS, Scenario};

use crate::figures::{self, Thousandths};
use crate::redis::server::Server;
use crate::verdict::{self, Verdict};
use crate::{Outcome, at_least_one, block_on};

/// Samples by the number of the scenario and the form of its calls.
type Results = figures::Results<(usize, Form)>;

/// Maximum CPU time of a call with an id, relative to one without.
const MAX_WITH_ID: Thousandths = Thousandths(1_600);

/// Maximum CPU time of a hold and its settlement together, relative to an acquire.
const MAX_OF_HOLD: Thousandths = Thousandths(2_500);

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Calls in each round for each figure.
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one)]
    calls: usize,
    /// Subjects that the calls are spread over, in turn.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one)]
    subjects: usize,
    /// Callers on the one connection.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    callers: usize,
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
    let mut results = Results::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (number, scenario) in SCENARIOS.iter().enumerate() {
            for form in Form::ALL {
                let sample = load::sample(&server, scenario, form, options).await?;
                results.add((number, form), options.callers, sample);
            }
        }
    }
    let Options { rounds, calls, subjects, callers, .. } = options;
    print!(
        "{version}, over TCP on this machine. Medians of {rounds} interleaved rounds of {calls} calls (of holds as many, \
         each with its settlement) by {callers} callers on one connection, after a call per subject; {subjects} \
         subjects in turn, each id once. CPU is the server's, user and system; ratios are medians of the rounds' \
         ratios.\n\n\
         | what | acquire, µs | with an id | hold, settlement | bytes of the id's key, of the hold's, once settled |\n\
         |---|--:|--:|--:|--:|\n",
        version = server.redis.version(),
    );
    let mut verdicts = vec![];
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        let Scenario { name, .. } = scenario;
        let of = |form| ((number, form), *callers);
        let plain = results.median((number, Form::Plain), *callers, |sample| sample.cpu)?;
        let with_id = results.cpu_ratio(of(Form::WithId), of(Form::Plain))?;
        let hold = results.cpu_ratio(of(Form::HoldAndSettlement), of(Form::Plain))?;
        let Sizes { id, held, settled } = load::sizes(&server, scenario).await?;
        println!(
            "| {name} | {} | × {with_id} | × {hold} | {id}, {held}, {settled} |",
            Thousandths(plain)
        );
        for (what, measured, max) in [
            ("with an id / without", with_id, MAX_WITH_ID),
            ("hold and settlement / acquire", hold, MAX_OF_HOLD),
        ] {
            verdicts.push(Verdict { what: format!("{name}: {what}"), max, measured });
        }
    }
    print!("\n{}", verdict::list(&verdicts));
    Ok(verdict::are_met(&verdicts))
}
