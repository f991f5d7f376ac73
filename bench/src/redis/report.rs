//! The tables, in Markdown.

use std::fmt::Write;
use std::sync::Arc;

use super::contender::{Answers, Contender, Id, Name, Way};
use super::targets::{self, PAIRS, cpu_ratio};
use super::{BATCH, CALLERS, Options, Results};
use crate::Outcome;
use crate::harness::{Cost, Server, Thousandths};

pub(crate) fn head(server: &Server, options: &Options) -> String {
    let Options { rounds, calls, subjects, .. } = options;
    format!(
        "{version}, over TCP on this machine. Medians of {rounds} interleaved rounds of {calls} calls \
         (of a caller alone a quarter, in batches as many decisions), after a call per subject to warm \
         up; {subjects} subjects in turn ({few} of the logs of 10,000). **Ours** stand in bold. CPU is \
         the server's, user and system, per decision; ratios are medians of the rounds' ratios.\n",
        version = server.redis.version(),
        few = subjects.div_ceil(50),
    )
}

/// Returns the table of contenders with one decision in each call.
pub(crate) fn singles(
    results: &Results,
    contenders: &[Arc<Contender>],
    callers: usize,
) -> Outcome<String> {
    let noun = if callers == 1 { "caller" } else { "callers" };
    let mut table = format!(
        "\n## {callers} {noun} on one connection\n\n\
         | what | answers | calls/s | p50, µs | p99, µs | CPU, µs | × `INCR` | × the other form |\n\
         |---|---|--:|--:|--:|--:|--:|---|\n"
    );
    for contender in contenders {
        let id = contender.id;
        let others = others(results, id, callers)?;
        writeln!(table, "{} {others} |", row(results, id, callers)?)?;
    }
    Ok(table)
}

pub(crate) fn batches(results: &Results, contenders: &[Arc<Contender>]) -> Outcome<String> {
    let single = CALLERS[0];
    let mut table = format!(
        "\n## Batches of {BATCH}, one caller\n\n\
         | what | answers | decisions/s | p50 of a batch, µs | p99, µs | CPU, µs | × `INCR` \
         | × single calls of {single} callers |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n"
    );
    for contender in contenders {
        let alone = Id { way: Way::Single, ..contender.id };
        let ratio = cpu_ratio(results, (contender.id, 1), (alone, single))?;
        writeln!(table, "{} {ratio} |", row(results, contender.id, 1)?)?;
    }
    Ok(table)
}

pub(crate) fn memory(results: &Results, contenders: &[Arc<Contender>]) -> Outcome<String> {
    let mut table = "\n## Memory\n\n\
         `MEMORY USAGE` of a key of 26 bytes and its state; logs are full.\n\n\
         | what | bytes per key | × the other form |\n|---|--:|---|\n"
        .to_owned();
    let mut names: Vec<Name> = contenders.iter().map(|contender| contender.id.name).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| *name != Name::ReturnOne);
    for name in names {
        let ratio = |other| targets::memory_ratio(results, name, other);
        let others = beside(name, ratio)?;
        writeln!(table, "| {name} | {} | {others} |", targets::memory(results, name)?)?;
    }
    Ok(table)
}

/// Returns all cells of a row except the last one.
fn row(results: &Results, id: Id, callers: usize) -> Outcome<String> {
    let median =
        |figure: fn(&Cost) -> u64| results.median(&(id, callers), |sample| figure(&sample.cost));
    let incr = Id { name: Name::Incr, answers: Answers::Allowed, way: Way::Single };
    // A batch of 64 decisions is compared with 64 `INCR` commands in flight.
    let incr_callers = if id.way.is_batch() { CALLERS[0] } else { callers };
    Ok(format!(
        "| {}{} | {} | {} | {} | {} | {} | {} |",
        id.name,
        id.way,
        id.answers,
        median(|cost| cost.per_second)?,
        Thousandths(median(|cost| cost.p50)?),
        Thousandths(median(|cost| cost.p99)?),
        Thousandths(median(|cost| cost.cpu)?),
        cpu_ratio(results, (id, callers), (incr, incr_callers))?,
    ))
}

/// Returns the CPU time of a contender relative to each script that stores the same state in
/// another form.
fn others(results: &Results, id: Id, callers: usize) -> Outcome<String> {
    let other = |name| Id { name, way: Way::Single, ..id };
    beside(id.name, |name| cpu_ratio(results, (id, callers), (other(name), callers)))
}

fn beside(ours: Name, ratio: impl Fn(Name) -> Outcome<Thousandths>) -> Outcome<String> {
    let mut cells = vec![];
    for pair in PAIRS.iter().filter(|pair| pair.ours == ours) {
        cells.push(format!("{} of {}", ratio(pair.other)?, pair.other));
    }
    Ok(cells.join("; "))
}
