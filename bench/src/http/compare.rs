//! The rows of the HTTP layer in the table of `compare`.

use super::stack::{FIELDS, GOVERNOR, GOVERNOR_NO_FIELDS, NO_FIELDS, measure, more_nanos};
use crate::Outcome;
use crate::harness::{Row, Thousandths};

/// Measures the layers around a service. With `short`, the loads are small.
pub(crate) fn compare(short: bool) -> Vec<Row> {
    let (rounds, requests) = if short { (1, 1_000) } else { (7, 200_000) };
    let costs = measure(rounds, requests).map_err(|error| error.to_string());
    let more = |name| -> Outcome<u64> { more_nanos(costs.as_ref().map_err(Clone::clone)?, name) };
    let row = |what: &str, max, ours, theirs| {
        // The bound is an absolute time. The time of tower_governor in the row shows how fast the
        // machine is.
        let other_time = more(theirs)
            .map_or_else(|_| String::new(), |nanos| format!(" (tower_governor: {nanos} ns)"));
        let measured = more(ours).map(|nanos| Thousandths(nanos * 1_000));
        Row::at_most(
            format!("HTTP layer around a service, {what}{other_time}"),
            "ns",
            max,
            measured,
        )
    };
    vec![
        row("with fields", 300_000, FIELDS, GOVERNOR),
        row("without fields", 110_000, NO_FIELDS, GOVERNOR_NO_FIELDS),
    ]
}
