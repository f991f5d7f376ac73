//! The rows of the memory store in the table of `compare`.

use super::contender::{GOVERNOR_FOLDHASH, THROUGH_LIMITER, TIDEGATE, TWO, contenders};
use super::subjects::{Size, Workload, recovering, workloads};
use super::{Samples, measure_all};
use crate::Outcome;
use crate::harness::{Row, Thousandths};

/// Measures the rows on one thread. With `short`, the loads are small.
pub(crate) fn compare(short: bool) -> Vec<Row> {
    let (size, rounds) = match short {
        true => (Size { subjects: 100, calls: 1_000 }, 1),
        false => (Size { subjects: 1_000_000, calls: 1_000_000 }, 7),
    };
    let samples = samples(size, rounds).map_err(|error| error.to_string());
    let ratio = |id, one, other| -> Outcome<Thousandths> {
        let samples = samples.as_ref().map_err(Clone::clone)?;
        samples.ratio((&(one, id, 1), &(other, id, 1)), |tenths| *tenths)
    };
    vec![
        Row::at_most(
            "memory store, 100,000 subjects that recover between checks: time / governor with \
             foldhash",
            "×",
            1_000,
            ratio("recovering", TIDEGATE, GOVERNOR_FOLDHASH),
        ),
        Row::at_most(
            "memory store, 1,000,000 new subjects: time / governor with foldhash",
            "×",
            800,
            ratio("insert", TIDEGATE, GOVERNOR_FOLDHASH),
        ),
        Row::at_most(
            "memory store, twice as many subjects as the bound: time with two policies / one \
             policy",
            "×",
            2_500,
            ratio("crowded", TWO, THROUGH_LIMITER),
        ),
    ]
}

fn samples(size: Size, rounds: usize) -> Outcome<Samples> {
    let mut samples = Samples::new();
    let mut measure = |workload: &Workload<String>, names: [&str; 2]| {
        let mut both = contenders();
        both.retain(|contender| names.contains(&contender.name));
        measure_all(&mut samples, &both, workload, rounds, &[1])
    };
    measure(&recovering(size), [TIDEGATE, GOVERNOR_FOLDHASH])?;
    for workload in workloads(size) {
        match workload.id {
            "insert" => measure(&workload, [TIDEGATE, GOVERNOR_FOLDHASH])?,
            "crowded" => measure(&workload, [TWO, THROUGH_LIMITER])?,
            _ => {}
        }
    }
    Ok(samples)
}
