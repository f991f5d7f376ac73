//! Log events of bans, of a circuit breaker that opens or closes, and of a fallback that starts or
//! stops deciding. No other call writes a line.
//!
//! No event contains a subject or a tenant. The cause of an error can be a message of a server that
//! quotes a key. So an event contains the cause only for kinds of errors whose causes contain no
//! key.

use std::time::Duration;

use crate::decision::DegradedAnswer;
use crate::error::{Error, ErrorKind};
use crate::policy::{Policy, format_duration};

/// Reports that the circuit has opened. `error` is the last of `failures` errors in a row.
pub(crate) fn opened(error: &Error, failures: u64) {
    tracing::warn!(
        target: "tidegate",
        reason = error.kind().as_str(),
        error = text(error),
        failures,
        "the circuit is open: the store is not called for a while"
    );
}

pub(crate) fn closed() {
    tracing::info!(target: "tidegate", "the circuit is closed: the store is called again");
}

pub(crate) fn taken_over(error: &Error, answer: DegradedAnswer) {
    tracing::warn!(
        target: "tidegate",
        reason = error.kind().as_str(),
        error = text(error),
        answer = answer.as_str(),
        "the store fails; its fallback decides"
    );
}

/// Reports that the store decides again, after `decisions` decisions that were made without the
/// store.
pub(crate) fn decides_again(decisions: u64) {
    tracing::info!(target: "tidegate", decisions, "the store decides again");
}

pub(crate) fn banned(policy: &Policy, span: Duration, reason: &str) {
    tracing::info!(
        target: "tidegate",
        policy = policy.name(),
        span = %format_duration(span),
        reason,
        "a subject is banned"
    );
}

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
