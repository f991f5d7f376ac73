//! The metrics of this crate, beside those of [`tidegate_core::telemetry::names`].

use tidegate_core::telemetry::names::{Kind, Metric};

/// How long scripts took, as seen from here.
pub const SCRIPT_SECONDS: Metric = Metric::new(
    Kind::Histogram,
    "tidegate_redis_script_seconds",
    &["script"],
    "Round trip of a script call, from sending it to its answer, network and queues included.",
);

/// All of them.
pub const ALL: [Metric; 1] = [SCRIPT_SECONDS];
