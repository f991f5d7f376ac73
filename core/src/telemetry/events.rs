//! Events for the log of an operator, by the feature `tracing`: changes of state, never a line per call.
//!
//! None holds a subject or a tenant. A server's own words may quote a key, so they are shown only for
//! kinds of errors whose words do not.

use crate::{DegradedAnswer, Error, ErrorKind};

/// The circuit has opened after this error, the last of so many in a row.
pub(crate) fn opened(error: &Error, failures: u64) {
    tracing::warn!(
        target: "tidegate",
        reason = error.kind().as_str(),
        error = text(error),
        failures,
        "the circuit is open: the store is not asked for a while"
    );
}

/// The circuit has closed.
pub(crate) fn closed() {
    tracing::info!(target: "tidegate", "the circuit is closed: the store is asked again");
}

/// A failure policy decides, as the store failed with this error.
pub(crate) fn taken_over(error: &Error, answer: DegradedAnswer) {
    tracing::warn!(
        target: "tidegate",
        reason = error.kind().as_str(),
        error = text(error),
        answer = answer.as_str(),
        "the store does not decide: its failure policy does"
    );
}

/// The store decides, after so many decisions without it.
pub(crate) fn decides_again(decisions: u64) {
    tracing::info!(target: "tidegate", decisions, "the store decides again");
}

/// What may be shown of an error.
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
