//! The state of a circuit as its users see it.

/// State of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// Calls go through.
    Closed,
    /// Calls fail at once.
    Open,
    /// A few calls go through to see whether the store is back; the others fail at once.
    HalfOpen,
}
