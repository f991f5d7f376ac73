//! The public state of a circuit.

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// All calls are sent to the store.
    Closed,
    /// All calls fail immediately.
    Open,
    /// A few calls are sent to the store as probes, and all other calls fail immediately.
    HalfOpen,
}
