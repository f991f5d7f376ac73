//! Events when a fallback takes over and when the store decides again. Without the feature `tracing` all of it is
//! empty.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "tracing")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "tracing")]
use crate::ErrorKind;
#[cfg(feature = "tracing")]
use crate::telemetry::events;
use crate::{Decision, DegradedAnswer, Error, Timestamp};

/// The minimum time between two events that a fallback has taken over, in microseconds: a store that fails
/// occasionally is not reported at each failure.
#[cfg(feature = "tracing")]
const MIN_INTERVAL: u64 = 10_000_000;

/// Whether decisions are made without the store, and their number.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Whether the last decision was made without the store.
    #[cfg(feature = "tracing")]
    is_ongoing: AtomicBool,
    #[cfg(feature = "tracing")]
    state: Mutex<State>,
}

#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
struct State {
    /// Decisions without the store since it was last reported to decide.
    decisions: u64,
    /// Whether the begin of the outage was reported, and its end was not.
    is_reported: bool,
    reported_at: Option<Timestamp>,
}

#[cfg(not(feature = "tracing"))]
impl Outage {
    pub(super) fn failed(&self, _: &Error, _: DegradedAnswer, _: Timestamp) {}

    pub(super) fn decided(&self, _: &Decision) {}
}

#[cfg(feature = "tracing")]
impl Outage {
    /// Records a decision without the store, which failed with this error.
    pub(super) fn failed(&self, error: &Error, answer: DegradedAnswer, now: Timestamp) {
        // It concerns one key: the store decides on others.
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

    /// Records a decision of the store, unless it is a degraded one of an inner layer.
    pub(super) fn decided(&self, decision: &Decision) {
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
