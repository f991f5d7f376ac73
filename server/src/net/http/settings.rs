use std::time::Duration;

/// The bounds of connections and requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpSettings {
    /// The maximum number of connections at the same time. Others get a 503, and are closed.
    pub max_connections: usize,
    /// After which time between two requests a connection ends.
    pub idle_timeout: Duration,
    /// How long the head of a request may take from its first byte to its last one; how long its body may take after
    /// that; and how long a client may take to accept the response.
    pub request_timeout: Duration,
    /// The maximum size of a request's head in bytes.
    pub max_head_bytes: usize,
    /// The maximum number of a request's header fields.
    pub max_headers: usize,
    /// The maximum size of a request's body in bytes.
    pub max_body_bytes: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            idle_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            max_head_bytes: 16 << 10,
            max_headers: 100,
            max_body_bytes: 1 << 20,
        }
    }
}
