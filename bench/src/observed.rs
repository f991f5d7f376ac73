//! What it costs to observe a store: a check in memory, as it is and observed.

use std::hint::black_box;
use std::time::Instant;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tidegate_memory::core::telemetry::names::SECONDS_BUCKETS;
use tidegate_memory::{Limiter, MemoryStore, Policy, Store, StoreExt};
use tidegate_testkit::Recorder;

use crate::Outcome;
use crate::figures::middle;

/// How much to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; of each figure the median counts.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Checks in each round for each store.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    checks: u32,
}

/// A store that is checked, again and again, and the times of one check, in nanoseconds.
struct Contender {
    name: &'static str,
    check: Box<dyn Fn(u32)>,
    nanos: Vec<u64>,
}

impl Contender {
    fn new(name: &'static str, store: impl Store + 'static, policy: &Policy) -> Outcome<Self> {
        let limiter = Limiter::new(store, [policy.clone()])?;
        let check = move |times| {
            for _ in 0..times {
                let _ = black_box(limiter.acquire(black_box("subject:000000000007")).into_ready());
            }
        };
        // The first looks everything up, by the recorder that is there just then.
        check(1_000);
        Ok(Self { name, check: Box::new(check), nanos: vec![] })
    }
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    let policy: Policy = "token-bucket 1000/1s burst 1000000".parse()?;
    let of_times = Matcher::Suffix("_seconds".to_owned());
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(of_times, &SECONDS_BUCKETS)?
        .build_recorder();
    let handle = prometheus.handle();
    let observed = |name| Contender::new(name, MemoryStore::new().observed(), &policy);
    let mut contenders = [
        Contender::new("not observed", MemoryStore::new(), &policy)?,
        observed("observed, no recorder")?,
        metrics::with_local_recorder(&Recorder::new(), || observed("observed, plain counters"))?,
        metrics::with_local_recorder(&prometheus, || observed("observed, Prometheus exporter"))?,
    ];
    for _ in 0..options.rounds {
        for contender in &mut contenders {
            let started = Instant::now();
            (contender.check)(options.checks);
            let nanos = u64::try_from(started.elapsed().as_nanos())?;
            contender.nanos.push(nanos / u64::from(options.checks));
        }
        // Else the exporter would keep all times until it is asked.
        handle.run_upkeep();
    }
    println!("| a check in memory | ns | more, ns |\n|---|--:|--:|");
    let plain = contenders[0].nanos.clone();
    for Contender { name, nanos, .. } in contenders {
        let more = nanos.iter().zip(&plain).map(|(ours, plain)| ours.saturating_sub(*plain));
        println!("| {name} | {} | {} |", middle(nanos.clone()), middle(more.collect()));
    }
    Ok(())
}
