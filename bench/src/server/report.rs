//! The tables, in Markdown.

use std::fmt::Write;

use super::load::Scenario;
use super::memory::Footprint;
use super::process::{Cores, Memory};
use super::{Options, Results, Sample, Servers};
use crate::Outcome;
use crate::harness::{Thousandths, middle};

pub(super) fn head(servers: &Servers, options: &Options) -> Outcome<String> {
    let cores = match servers.cores {
        Cores::First(_) => "All servers run on one core, the client on another one.",
        Cores::Any | Cores::Shared { .. } => {
            "Neither servers nor client have cores of their own: there are not two, or no `taskset`."
        }
    };
    let peer = match (&servers.throttlecrab, &servers.program) {
        (Ok(_), Some(program)) => format!("throttlecrab-server is {}.", program.display()),
        (Ok(_), None) => String::new(),
        (Err(reason), _) => format!("**throttlecrab-server is not measured: {reason}.**"),
    };
    Ok(format!(
        "{} over TCP on this machine, with one client for all. {cores} {peer} Medians of {} interleaved rounds of {} ms, \
         and the lowest and the highest of the rounds. CPU is user and system, per request. {} subjects where they are \
         many.\n",
        servers.redis()?.version(),
        options.rounds,
        options.millis,
        options.subjects,
    ))
}

pub(super) fn table(results: &Results, scenario: Scenario, options: &Options) -> Outcome<String> {
    let mut table = format!(
        "\n## {}\n\n\
         | | requests/s | of the rounds | p50, µs | p99, µs | server's CPU, µs | of the rounds | × throttlecrab's \
         | CPU of Redis, µs |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        scenario.name(options)
    );
    let [_, throttlecrab, ..] = scenario.protocol.contenders() else {
        return Err("the protocol has no contenders".into());
    };
    for contender in scenario.protocol.contenders() {
        let Ok(samples) = results.get(&(scenario, *contender)) else { continue };
        let all = |figure: fn(&Sample) -> u64| samples.iter().map(figure).collect::<Vec<_>>();
        let range = |figures: &[u64], show: fn(u64) -> String| {
            let (min, max) = (figures.iter().min(), figures.iter().max());
            format!("{} to {}", show(*min.unwrap_or(&0)), show(*max.unwrap_or(&0)))
        };
        let micros = |nanos| Thousandths(nanos).to_string();
        let (rates, cpu) = (all(|sample| sample.per_second), all(|sample| sample.cpu));
        let keys = (&(scenario, *contender), &(scenario, *throttlecrab));
        let ratio = results.ratio(keys, |sample| sample.cpu);
        let store: Option<Vec<u64>> = samples.iter().map(|sample| sample.store).collect();
        writeln!(
            table,
            "| {contender} | {} | {} | {} | {} | {} | {} | {} | {} |",
            middle(rates.clone()),
            range(&rates, |rate| rate.to_string()),
            micros(middle(all(|sample| sample.p50))),
            micros(middle(all(|sample| sample.p99))),
            micros(middle(cpu.clone())),
            range(&cpu, micros),
            ratio.map(|ratio| ratio.to_string()).unwrap_or_default(),
            store.map(|store| micros(middle(store))).unwrap_or_default(),
        )?;
    }
    Ok(table)
}

pub(super) fn memory(footprints: &[Footprint], options: &Options) -> String {
    let mut table = format!(
        "\n## Memory\n\n\
         MiB resident, with the share of other processes taken off, and anonymous; {} subjects are stored at the end.\n\n\
         | | at rest | after a load | with the subjects | bytes a subject |\n|---|--:|--:|--:|--:|\n",
        options.stored
    );
    for footprint in footprints {
        let name = match footprint.peer {
            super::Peer::Throttlecrab => "throttlecrab-server",
            _ => "**tidegate-server**",
        };
        let show = |memory: &Memory| {
            let mib = |bytes: u64| Thousandths(bytes.saturating_mul(1_000) >> 20);
            let Memory { resident, proportional, anonymous } = memory;
            format!("{}, {}, {}", mib(*resident), mib(*proportional), mib(*anonymous))
        };
        table += &format!(
            "| {name} | {} | {} | {} | {} |\n",
            show(&footprint.at_rest),
            show(&footprint.after_load),
            show(&footprint.full),
            footprint.per_subject(),
        );
    }
    table
}
