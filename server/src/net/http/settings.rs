use std::time::Duration;

/// The bounds of connections and requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpSettings {
    /// The maximum number of concurrent connections. Further connections receive a 503 and are
    /// closed.
    pub max_connections: usize,
    /// The maximum time between two requests of a connection. After this time, the server closes
    /// the connection.
    pub idle_timeout: Duration,
    /// The maximum time from the first to the last byte of a request's head. The body has the same
    /// maximum, counted from the end of the head. So has the time in which the client must accept
    /// the response.
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
