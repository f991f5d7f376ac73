//! What `until_ready` returns.

use std::time::Duration;

use super::detached::is_failed_closed;
use crate::policy::format_duration;
use crate::{Decision, Error, ErrorKind};

/// A request that was admitted, after a wait or at once.
///
/// There is no refused one, so it need not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission(Decision);

impl Admission {
    pub(super) fn new(decision: Decision, max_wait: Duration) -> Result<Self, Error> {
        if decision.is_allowed() {
            return Ok(Self(decision));
        }
        if let Some(degraded) = decision.degraded().filter(|_| is_failed_closed(&decision)) {
            return Err(Error::new(degraded.reason, "refused, as the store gave no decision"));
        }
        let message = match decision.retry_after() {
            Some(wait) => format!(
                "the wait would be {}, and the longest wait is {}",
                format_duration(wait),
                format_duration(max_wait)
            ),
            None => "the cost is above the limit, and so never admitted".to_owned(),
        };
        Err(Error::new(ErrorKind::WaitTooLong, message))
    }

    /// How long the request has waited.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.0.wait()
    }

    /// The decision, which admits.
    pub fn decision(&self) -> &Decision {
        &self.0
    }
}
