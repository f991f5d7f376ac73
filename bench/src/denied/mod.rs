//! The deny cache: what a load of which nine tenths are refused costs one Redis, with and without it.

mod cache_hit;
mod load;
mod scenario;

use std::collections::BTreeMap;

use load::Sample;
use scenario::{SCENARIOS, Scenario};

use crate::figures::{Thousandths, middle};
use crate::redis::server::Server;
use crate::{Outcome, at_least_one, block_on};

/// How many times as much CPU time of the server a flood wants without the cache, at least.
const TARGET: Thousandths = Thousandths(8_000);

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 7, value_parser = at_least_one)]
    rounds: usize,
    /// Requests in each round.
    #[arg(long, default_value_t = 200_000, value_parser = at_least_one)]
    calls: usize,
    /// Callers on the one connection.
    #[arg(long, default_value_t = 64, value_parser = at_least_one)]
    callers: usize,
    /// Fail if the target is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Samples of each round, without the cache and with it.
type Pairs = Vec<(Sample, Sample)>;

/// Measures and prints. Returns whether the target is met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let (mut results, version) = block_on(compare(options))?;
    println!(
        "{version}, over TCP on this machine. Medians of {} interleaved rounds of {} requests by {} \
         callers on one connection. CPU is the server's, user and system, per request; ratios are \
         medians of the rounds' ratios.\n",
        options.rounds, options.calls, options.callers,
    );
    println!("| load | refused | asked | CPU, µs | with the cache | × less |");
    println!("|---|--:|--:|--:|--:|--:|");
    let mut is_met = true;
    for scenario in SCENARIOS {
        let pairs = results.remove(&scenario).unwrap_or_default();
        let ratio = row(scenario, &pairs)?;
        is_met &= scenario != Scenario::Blocked || ratio >= TARGET;
    }
    let word = if is_met { "met" } else { "NOT MET" };
    println!("\n- {word}: blocked callers, target {} × less\n", TARGET.exact());
    cache_hit::report(options.rounds)?;
    Ok(is_met)
}

async fn compare(options: &Options) -> Outcome<(BTreeMap<Scenario, Pairs>, String)> {
    let server = Server::start().await?;
    let mut results = BTreeMap::<Scenario, Pairs>::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for scenario in SCENARIOS {
            let sample = async |is_cached| {
                load::sample(&server, scenario, options.calls, options.callers, round, is_cached)
                    .await
            };
            // The order alternates, so that being first is no advantage.
            let pair = if round % 2 == 0 {
                let plain = sample(false).await?;
                (plain, sample(true).await?)
            } else {
                let cached = sample(true).await?;
                (sample(false).await?, cached)
            };
            results.entry(scenario).or_default().push(pair);
        }
    }
    Ok((results, server.redis.version().to_string()))
}

fn row(scenario: Scenario, pairs: &Pairs) -> Outcome<Thousandths> {
    let median = |figure: fn(&(Sample, Sample)) -> u64| {
        Thousandths(middle(pairs.iter().map(figure).collect()))
    };
    let ratios: Option<Vec<Thousandths>> =
        pairs.iter().map(|(plain, cached)| Thousandths::of(plain.cpu, cached.cpu)).collect();
    let ratio = middle(ratios.ok_or("too few requests to measure the server's CPU time")?);
    println!(
        "| {scenario} | {} % | {} % | {} | {} | {ratio} |",
        median(|pair| pair.0.refused * 100),
        median(|pair| pair.1.asked * 100),
        median(|pair| pair.0.cpu),
        median(|pair| pair.1.cpu),
    );
    Ok(ratio)
}
