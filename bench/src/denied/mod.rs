//! Measures the deny cache: the cost of loads that are mostly refused, on one Redis, with and
//! without the cache.

mod cache_hit;
mod load;
mod scenario;

use load::Sample;
use scenario::{SCENARIOS, Scenario};

use crate::harness::{Samples, Server, Thousandths, Verdict, finish, rounds};
use crate::{Outcome, at_least_one, block_on};

/// The maximum CPU time of the server for blocked callers with a cache, relative to the time
/// without a cache.
const MAX_BLOCKED: Thousandths = Thousandths(125);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; the medians of the rounds are printed.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Number of requests in each measurement.
    #[arg(long, default_value_t = 200_000, value_parser = at_least_one)]
    calls: usize,
    /// Number of callers on the connection.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    callers: usize,
    /// Fail if the target is missed.
    #[arg(long)]
    check: bool,
}

/// The samples by scenario, and by whether the store has a cache.
type Results = Samples<(Scenario, bool), Sample>;

/// Returns `false` if `--check` is set and a target is missed.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let (samples, version) = block_on(compare(options))?;
    println!(
        "{version}, over TCP on this machine. Medians of {} interleaved rounds of {} requests by {} \
         callers on one connection. CPU is the user and system time of the server, per request; ratios \
         are medians of the rounds' ratios.\n",
        options.rounds, options.calls, options.callers,
    );
    println!("| load | refused | decided by the store | CPU, µs | with the cache | × less |");
    println!("|---|--:|--:|--:|--:|--:|");
    for scenario in SCENARIOS {
        let (plain, cached) = ((scenario, false), (scenario, true));
        println!(
            "| {scenario} | {} % | {} % | {} | {} | {} |",
            Thousandths(samples.median(&plain, |sample| sample.refused * 100)?),
            Thousandths(samples.median(&cached, |sample| sample.asked * 100)?),
            Thousandths(samples.median(&plain, |sample| sample.cpu)?),
            Thousandths(samples.median(&cached, |sample| sample.cpu)?),
            samples.ratio((&plain, &cached), |sample| sample.cpu)?,
        );
    }
    println!();
    cache_hit::report(options.rounds)?;
    let (plain, cached) = ((Scenario::Blocked, false), (Scenario::Blocked, true));
    let measured = samples.ratio((&cached, &plain), |sample| sample.cpu)?;
    let what = "blocked callers, the server's CPU with the cache / without";
    Ok(finish(&[Verdict::new(what, measured, MAX_BLOCKED)], options.check))
}

async fn compare(options: &Options) -> Outcome<(Results, String)> {
    let server = Server::start().await?;
    let mut samples = Results::new();
    for round in rounds(options.rounds) {
        for scenario in SCENARIOS {
            // The order alternates, because the first measurement can have an advantage.
            let first = round % 2 == 0;
            for is_cached in [first, !first] {
                let sample = load::sample(&server, scenario, options, round, is_cached).await?;
                samples.add((scenario, is_cached), sample);
            }
        }
    }
    Ok((samples, server.redis.version().to_string()))
}
