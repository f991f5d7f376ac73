//! The table, in Markdown.

use std::fmt::Write;

use tidegate_test_servers::Version;

use super::load::{Generator, Sample};
use super::{ALL, Limits, Options, Results};
use crate::Outcome;
use crate::figures::{Thousandths, middle};

pub(super) fn table(
    options: &Options,
    load: &Generator,
    redis: &Version,
    results: &Results,
) -> Outcome<String> {
    let Options { rounds, seconds, connections, .. } = options;
    let mut table = format!(
        "An axum server that says hello, on one thread, asked by {} on another with {connections} \
         connections; {redis} over TCP on this machine. Medians of {rounds} interleaved rounds of \
         {seconds} s; ratios are medians of the rounds' ratios to the server without a limiter.\n\n\
         | limiter | requests/s | ratio | p50, µs | ratio | p99, µs | ratio |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
        load.version,
    );
    let [off, ..] = results;
    for (limits, samples) in ALL.iter().zip(results) {
        write!(table, "| {} |", name(*limits))?;
        write!(table, " {} |", middle(samples.iter().map(|s| s.per_second).collect()))?;
        write!(table, " {} |", ratio(samples, off, |sample| sample.per_second)?)?;
        for figure in [(|s| s.p50) as fn(&Sample) -> u64, |s| s.p99] {
            write!(table, " {} |", middle(samples.iter().map(figure).collect()) / 1_000)?;
            write!(table, " {} |", ratio(samples, off, figure)?)?;
        }
        table.push('\n');
    }
    Ok(table)
}

fn name(limits: Limits) -> &'static str {
    match limits {
        Limits::Off => "none",
        Limits::Layer => "**tidegate-http**, fields on",
        Limits::Governor => "tower_governor, fields on",
        Limits::Memory => "`MemoryStore` in the handler",
        Limits::Redis => "`RedisStore` in the handler",
    }
}

fn ratio(ones: &[Sample], others: &[Sample], of: impl Fn(&Sample) -> u64) -> Outcome<Thousandths> {
    let ratios: Option<Vec<_>> =
        ones.iter().zip(others).map(|(a, b)| Thousandths::of(of(a), of(b))).collect();
    Ok(middle(ratios.ok_or("the server without a limiter answered nothing")?))
}
