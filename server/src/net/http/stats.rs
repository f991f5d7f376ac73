use metrics::{Counter, Gauge, counter, gauge};

/// Metrics of the recorder that is installed when they are made.
pub(super) struct HttpStats {
    pub(super) connections: Gauge,
    pub(super) refused_connections: Counter,
}

impl HttpStats {
    pub(super) fn new() -> Self {
        Self {
            connections: gauge!("tidegate_server_http_connections"),
            refused_connections: counter!("tidegate_server_http_refused_connections_total"),
        }
    }
}
