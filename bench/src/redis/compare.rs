//! The rows of the scripts in the table of `compare`.

use super::contender::{Answers, Id, Name, Way};
use super::targets::cpu_ratio;
use super::{CALLERS, Options, Results, contenders, sample};
use crate::harness::{Row, Server, Thousandths, rounds};
use crate::{Outcome, block_on};

/// The callers on the connection.
const MANY: usize = CALLERS[0];

/// Measures a single charge of each algorithm, and the floor. With `short`, the loads are small.
pub(crate) fn compare(short: bool) -> Vec<Row> {
    let options = match short {
        true => Options { rounds: 1, calls: 200, subjects: 20, check: false },
        false => Options { rounds: 7, calls: 10_000, subjects: 1_000, check: false },
    };
    let results = block_on(measure(&options)).map_err(|error| error.to_string());
    let ratio = |name| -> Outcome<Thousandths> {
        let results = results.as_ref().map_err(Clone::clone)?;
        cpu_ratio(results, (id(name), MANY), (id(Name::Floor), MANY))
    };
    let row = |what, name| {
        let load = format!("one charge in Lua, {what}: Redis CPU / `TIME`, `GET`, `SET KEEPTTL`");
        Row::at_most(load, "×", 1_200, ratio(name))
    };
    vec![
        row("token bucket", Name::TokenBucket),
        row("fixed window", Name::FixedWindow),
        row("sliding counter", Name::SlidingCounter),
    ]
}

fn id(name: Name) -> Id {
    Id { name, answers: Answers::Allowed, way: Way::Single }
}

async fn measure(options: &Options) -> Outcome<Results> {
    let server = Server::start().await?;
    let names = [Name::Floor, Name::TokenBucket, Name::FixedWindow, Name::SlidingCounter];
    let mut singles = contenders::singles(&server, options)?;
    singles.retain(|contender| names.map(id).contains(&contender.id));
    let mut results = Results::new();
    for _ in rounds(options.rounds) {
        for contender in &singles {
            let sample = sample(&server, contender, MANY, options.calls).await?;
            results.add((contender.id, MANY), sample);
        }
    }
    Ok(results)
}
