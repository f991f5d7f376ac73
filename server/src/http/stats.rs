use metrics::{Counter, Gauge, counter, gauge};

/// The metrics of HTTP connections. They belong to the recorder that is installed when they are
/// created.
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
