//! The names of the metrics of this crate. [`tidegate_core::telemetry::names`] has the metrics of
//! all stores.

use tidegate_core::telemetry::names::{Kind, Metric};

/// The round-trip time of script calls.
pub const SCRIPT_SECONDS: Metric = Metric::new(
    Kind::Histogram,
    "tidegate_redis_script_seconds",
    &["script"],
    "Round-trip time of a script call, with network and queues.",
);

/// All metrics of this crate.
pub const ALL: [Metric; 1] = [SCRIPT_SECONDS];
