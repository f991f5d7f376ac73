//! Measures the Lua scripts of `tidegate-redis` that decide a single charge. The results are rows
//! of the table that the command `tidegate-bench compare` prints.

use std::sync::Arc;

use super::contender::{Answers, Form, Id, Name, Way};
use super::targets::cpu_ratio;
use super::{CALLERS, Options, Results, contenders, sample};
use crate::harness::{Row, Server, Thousandths, rounds};
use crate::{Outcome, block_on};

/// The callers on the connection.
const MANY: usize = CALLERS[0];

/// Compares a single charge of each algorithm with the script `floor.lua`. With `short`, the loads
/// are small.
pub(crate) fn compare(short: bool) -> Vec<Row> {
    let options = match short {
        true => Options { rounds: 1, calls: 200, subjects: 20, check: false },
        // A bucket sets the expiry of a new state several times. With many calls per subject, most
        // charges keep the expiry, as `floor.lua` does.
        false => Options { rounds: 9, calls: 10_000, subjects: 120, check: false },
    };
    let results = block_on(measure(&options)).map_err(|error| error.to_string());
    let ratio = |name, other| -> Outcome<Thousandths> {
        let results = results.as_ref().map_err(Clone::clone)?;
        cpu_ratio(results, (id(name), MANY), (id(other), MANY))
    };
    let row = |what, name| {
        let load = format!("one charge in Lua, {what}: Redis CPU / `TIME`, `GET`, `SET KEEPTTL`");
        Row::at_most(load, "×", 1_200, ratio(name, Name::Floor))
    };
    let quota = |what, name, max| {
        let load = format!("one charge in Lua, {what}: Redis CPU / fixed window");
        Row::at_most(load, "×", max, ratio(name, Name::FixedWindow))
    };
    vec![
        row("token bucket", Name::TokenBucket),
        row("fixed window", Name::FixedWindow),
        row("sliding counter", Name::SlidingCounter),
        quota("quota", Name::Quota, 1_150),
        quota("quota with rollover or grants", Name::RollingQuota, 2_500),
    ]
}

fn id(name: Name) -> Id {
    Id { name, answers: Answers::Allowed, way: Way::Single }
}

async fn measure(options: &Options) -> Outcome<Results> {
    let server = Server::start().await?;
    let names = [
        Name::Floor,
        Name::TokenBucket,
        Name::FixedWindow,
        Name::SlidingCounter,
        Name::Quota,
        Name::RollingQuota,
    ];
    let singles = contenders::singles(&server, options)?.into_iter().filter_map(Arc::into_inner);
    let mut singles: Vec<_> =
        singles.filter(|contender| names.map(id).contains(&contender.id)).collect();
    for contender in &mut singles {
        if let Form::Store(_) = contender.form {
            // One client sends `floor.lua` and the other scripts, because the size of a client's
            // writes influences the CPU time of the server.
            contender.form = Form::Script(server.connection.clone());
        }
    }
    let singles: Vec<_> = singles.into_iter().map(Arc::new).collect();
    let mut results = Results::new();
    for _ in rounds(options.rounds) {
        for contender in &singles {
            let sample = sample(&server, contender, MANY, options.calls).await?;
            results.add((contender.id, MANY), sample);
        }
    }
    Ok(results)
}
