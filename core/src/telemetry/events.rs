//! Events for the log: changes of state, never a line per call.
//!
//! No event contains a subject or a tenant. A server's message may quote a key, so it is included only for kinds of
//! errors whose messages do not.

use crate::{DegradedAnswer, Error, ErrorKind};

/// The circuit has opened after this error, the last of `failures` in a row.
pub(crate) fn opened(error: &Error, failures: u64) {
    tracing::warn!(
        target: "tidegate",
        reason = error.kind().as_str(),
        error = text(error),
        failures,
        "the circuit is open: the store is not called for a while"
    );
}

/// The circuit has closed.
pub(crate) fn closed() {
    tracing::info!(target: "tidegate", "the circuit is closed: the store is called again");
}

/// A fallback decides, as the store failed with this error.
pub(crate) fn taken_over(error: &Error, answer: DegradedAnswer) {
    tracing::warn!(
        target: "tidegate",
        reason = error.kind().as_str(),
        error = text(error),
        answer = answer.as_str(),
        "the store does not decide: its fallback does"
    );
}

/// The store decides again, after `decisions` decisions without it.
pub(crate) fn decides_again(decisions: u64) {
    tracing::info!(target: "tidegate", decisions, "the store decides again");
}

/// The part of an error that may be shown.
fn text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Timeout
        | ErrorKind::Unavailable
        | ErrorKind::ReadOnly
        | ErrorKind::Busy
        | ErrorKind::OutOfMemory
        | ErrorKind::CircuitOpen => format!("{error:#}"),
        _ => error.to_string(),
    }
}
