//! What an operator sees: the names of metrics, and events for the log.

#[cfg(feature = "tracing")]
pub(crate) mod events;
#[cfg(feature = "metrics")]
pub mod names;
