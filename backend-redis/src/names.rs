//! The metrics of this crate, beside those of [`tidegate_core::telemetry::names`].

use tidegate_core::telemetry::names::{Kind, Metric};

/// Round-trip time of scripts.
pub const SCRIPT_SECONDS: Metric = Metric::new(
    Kind::Histogram,
    "tidegate_redis_script_seconds",
    &["script"],
    "Round-trip time of a script call, with network and queues.",
);

/// All metrics of this crate.
pub const ALL: [Metric; 1] = [SCRIPT_SECONDS];
