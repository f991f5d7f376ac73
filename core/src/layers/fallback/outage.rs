//! When a failure policy takes over, and when the store decides again: an event each, by the feature
//! `tracing`. Without it all of this is empty.

#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "tracing")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "tracing")]
use crate::ErrorKind;
#[cfg(feature = "tracing")]
use crate::telemetry::events;
use crate::{Decision, DegradedAnswer, Error, Timestamp};

/// The least time between two events that a failure policy has taken over, in microseconds: a store that
/// fails now and then is reported once in a while, and not at each call.
#[cfg(feature = "tracing")]
const QUIET: u64 = 10_000_000;

/// Whether decisions are made without the store, and how many were.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Whether the last decision was made without the store.
    #[cfg(feature = "tracing")]
    lasts: AtomicBool,
    #[cfg(feature = "tracing")]
    state: Mutex<State>,
}

#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
struct State {
    /// How many decisions were made without the store since it was last reported to decide.
    decisions: u64,
    /// Whether it was reported that the policy has taken over, and not yet that it has ended.
    is_reported: bool,
    reported_at: Option<Timestamp>,
}

#[cfg(not(feature = "tracing"))]
impl Outage {
    pub(super) fn stood_in(&self, _: &Error, _: DegradedAnswer, _: Timestamp) {}

    pub(super) fn decided(&self, _: &Decision) {}
}

#[cfg(feature = "tracing")]
impl Outage {
    /// A decision was made without the store, as it failed with this error.
    pub(super) fn stood_in(&self, error: &Error, answer: DegradedAnswer, now: Timestamp) {
        // That says nothing of other subjects: the store decides on those.
        if error.kind() == ErrorKind::ForeignValue {
            return;
        }
        let mut state = self.state();
        state.decisions = state.decisions.saturating_add(1);
        self.lasts.store(true, Ordering::Relaxed);
        let is_quiet = |at: Timestamp| now.as_micros() < at.as_micros().saturating_add(QUIET);
        if state.is_reported || state.reported_at.is_some_and(is_quiet) {
            return;
        }
        (state.is_reported, state.reported_at) = (true, Some(now));
        drop(state);
        events::taken_over(error, answer);
    }

    /// The store has decided, unless this is what one within made up.
    pub(super) fn decided(&self, decision: &Decision) {
        if !self.lasts.load(Ordering::Relaxed) || decision.degraded().is_some() {
            return;
        }
        let mut state = self.state();
        self.lasts.store(false, Ordering::Relaxed);
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
