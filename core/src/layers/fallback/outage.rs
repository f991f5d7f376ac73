//! Reports two events: that a fallback has taken over the decisions, and that the store decides
//! again. Without the feature `tracing`, all functions are empty.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "tracing")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "tracing")]
use crate::ErrorKind;
#[cfg(feature = "tracing")]
use crate::telemetry::events;
use crate::{Decision, DegradedAnswer, Error, Timestamp};

/// The minimum number of microseconds between two reports that a fallback has taken over. Without
/// this minimum, each failure of a store that fails occasionally would be reported.
#[cfg(feature = "tracing")]
const MIN_INTERVAL: u64 = 10_000_000;

/// Counts the decisions that are made without the store, and reports the beginning and the end of
/// an outage.
#[derive(Debug, Default)]
pub(super) struct Outage {
    #[cfg(feature = "tracing")]
    is_ongoing: AtomicBool,
    #[cfg(feature = "tracing")]
    state: Mutex<State>,
}

#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
struct State {
    /// The number of decisions without the store, since the last report that the store decides
    /// again.
    decisions: u64,
    /// Whether the beginning of the outage was reported, but not its end.
    is_reported: bool,
    reported_at: Option<Timestamp>,
}

#[cfg(not(feature = "tracing"))]
impl Outage {
    pub(super) fn record_failure(&self, _: &Error, _: DegradedAnswer, _: Timestamp) {}

    pub(super) fn record_decision(&self, _: &Decision) {}
}

#[cfg(feature = "tracing")]
impl Outage {
    pub(super) fn record_failure(&self, error: &Error, answer: DegradedAnswer, now: Timestamp) {
        // An error of the kind `ForeignValue` concerns one key. The store still decides calls for
        // other keys, so the error is not an outage.
        if error.kind() == ErrorKind::ForeignValue {
            return;
        }
        let mut state = self.state();
        state.decisions = state.decisions.saturating_add(1);
        self.is_ongoing.store(true, Ordering::Relaxed);
        let is_recent =
            |at: Timestamp| now.as_micros() < at.as_micros().saturating_add(MIN_INTERVAL);
        if state.is_reported || state.reported_at.is_some_and(is_recent) {
            return;
        }
        (state.is_reported, state.reported_at) = (true, Some(now));
        drop(state);
        events::taken_over(error, answer);
    }

    /// Records a decision of the store. A degraded decision of an inner layer is ignored.
    pub(super) fn record_decision(&self, decision: &Decision) {
        if !self.is_ongoing.load(Ordering::Relaxed) || decision.degraded().is_some() {
            return;
        }
        let mut state = self.state();
        self.is_ongoing.store(false, Ordering::Relaxed);
        if std::mem::take(&mut state.is_reported) {
            let decisions = std::mem::take(&mut state.decisions);
            drop(state);
            events::decides_again(decisions);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
