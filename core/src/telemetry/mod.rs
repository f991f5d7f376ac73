//! Information for operators: metrics, and log events.

#[cfg(feature = "tracing")]
pub(crate) mod events;
#[cfg(feature = "metrics")]
pub mod names;
