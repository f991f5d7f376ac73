//! Metrics of connections and commands.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::table::COMMANDS;
use crate::calls::{CallStats, Outcome};

/// The metrics of RESP. `new` creates them in the recorder of the crate `metrics` that is installed
/// at that time.
#[derive(Debug)]
pub(super) struct RespStats {
    calls: CallStats,
    batch_seconds: Histogram,
    pub(super) connections: Gauge,
    pub(super) refused_connections: Counter,
    pub(super) protocol_errors: Counter,
}

impl RespStats {
    pub(super) fn new() -> Self {
        Self {
            calls: CallStats::new("resp", COMMANDS.iter().map(|spec| spec.name)),
            batch_seconds: histogram!("tidegate_server_resp_batch_seconds"),
            connections: gauge!("tidegate_server_resp_connections"),
            refused_connections: counter!("tidegate_server_resp_refused_connections_total"),
            protocol_errors: counter!("tidegate_server_resp_protocol_errors_total"),
        }
    }

    /// Counts a command. `command` is its index in [`COMMANDS`], or `None` if the command is
    /// unknown.
    pub(super) fn command(&self, command: Option<usize>, outcome: Outcome) {
        self.calls.count(command, outcome);
    }

    pub(super) fn batch(&self, took: Duration) {
        self.batch_seconds.record(took);
    }
}
