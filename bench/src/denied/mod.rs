//! The deny cache: what a load of which nine tenths are refused costs one Redis, with and without it.

mod hit;
mod load;
mod scene;

use std::collections::BTreeMap;

use load::Sample;
use scene::{SCENES, Scene};

use crate::figures::{Thousandths, middle};
use crate::redis::load::Server;
use crate::{Outcome, at_least_one};

/// How many times as much CPU time of the server a flood wants without the cache, at least.
const WANTED: Thousandths = Thousandths(8_000);

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
    /// Fail if the wanted ratio is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Samples of each round, without the cache and with it.
type Pairs = Vec<(Sample, Sample)>;

/// Measures and prints; says whether the wanted ratio is met.
pub(crate) fn run(options: &Options) -> Outcome<bool> {
    let (mut results, version) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async { compare(options).await })?;
    println!(
        "{version}, over TCP on this machine. Medians of {} interleaved rounds of {} requests by {} \
         callers on one connection. CPU is the server's, user and system, per request; ratios are \
         medians of the rounds' ratios.\n",
        options.rounds, options.calls, options.callers,
    );
    println!("| load | refused | asked | CPU, µs | with the cache | × less |");
    println!("|---|--:|--:|--:|--:|--:|");
    let mut is_met = true;
    for scene in SCENES {
        let pairs = results.remove(&scene).unwrap_or_default();
        let ratio = row(scene, &pairs)?;
        is_met &= scene != Scene::ShutOut || ratio >= WANTED;
    }
    let word = if is_met { "met" } else { "NOT MET" };
    println!("\n- {word}: callers who are shut out, {} × less wanted\n", WANTED.exact());
    hit::report(options.rounds)?;
    Ok(is_met)
}

async fn compare(options: &Options) -> Outcome<(BTreeMap<Scene, Pairs>, String)> {
    let server = Server::start().await?;
    let mut results = BTreeMap::<Scene, Pairs>::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for scene in SCENES {
            let sample = async |is_cached| {
                load::sample(&server, scene, options.calls, options.callers, round, is_cached).await
            };
            // Who is first has no advantage in the long run.
            let pair = if round % 2 == 0 {
                let plain = sample(false).await?;
                (plain, sample(true).await?)
            } else {
                let cached = sample(true).await?;
                (sample(false).await?, cached)
            };
            results.entry(scene).or_default().push(pair);
        }
    }
    Ok((results, server.redis.version().to_string()))
}

fn row(scene: Scene, pairs: &Pairs) -> Outcome<Thousandths> {
    let median = |figure: fn(&(Sample, Sample)) -> u64| {
        Thousandths(middle(pairs.iter().map(figure).collect()))
    };
    let ratios: Option<Vec<Thousandths>> =
        pairs.iter().map(|(plain, cached)| Thousandths::of(plain.cpu, cached.cpu)).collect();
    let ratio = middle(ratios.ok_or("too few requests to measure the server's CPU time")?);
    println!(
        "| {scene} | {} % | {} % | {} | {} | {ratio} |",
        median(|pair| pair.0.refused * 100),
        median(|pair| pair.1.asked * 100),
        median(|pair| pair.0.cpu),
        median(|pair| pair.1.cpu),
    );
    Ok(ratio)
}
