//! Metrics of a circuit breaker. Without the feature `metrics`, all functions are empty.
//!
//! The meter creates its metrics at the first call to the store. So the application must install
//! its metrics recorder before that call.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

use super::state::CircuitState;
#[cfg(feature = "metrics")]
use crate::telemetry::names;

/// The metrics of one circuit breaker. Each state of a circuit has a gauge. Until the breaker is
/// dropped, the gauge of its current state counts the breaker.
#[derive(Debug, Default)]
pub(super) struct BreakerMeter {
    #[cfg(feature = "metrics")]
    gauges: OnceLock<Box<BreakerGauges>>,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct BreakerGauges {
    /// The state whose gauge counts this breaker now, or `None` if no gauge counts it.
    counted: std::sync::Mutex<Option<CircuitState>>,
    states: [metrics::Gauge; 3],
    opened: metrics::Counter,
}

impl BreakerMeter {
    /// Counts the breaker in the gauge of its state, if no gauge counts the breaker yet.
    pub(super) fn begin(&self, state: impl Fn() -> CircuitState) {
        #[cfg(feature = "metrics")]
        if self.gauges.get().is_none() {
            self.changed(state);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = state;
    }

    /// Decrements the gauge of the breaker's previous state, and increments the gauge of its
    /// current state. Calls `state` under a lock, so that the gauges show the latest state.
    pub(super) fn changed(&self, state: impl Fn() -> CircuitState) {
        #[cfg(feature = "metrics")]
        self.gauges().move_to(|| Some(state()));
        #[cfg(not(feature = "metrics"))]
        let _ = state;
    }

    pub(super) fn opened(&self) {
        #[cfg(feature = "metrics")]
        self.gauges().opened.increment(1);
    }

    #[cfg(feature = "metrics")]
    fn gauges(&self) -> &BreakerGauges {
        self.gauges.get_or_init(|| {
            names::BREAKER_STATE.describe();
            names::BREAKER_OPENED.describe();
            let gauge = |state| metrics::gauge!(names::BREAKER_STATE.name, "state" => state);
            Box::new(BreakerGauges {
                counted: std::sync::Mutex::new(None),
                states: STATES.map(|(_, word)| gauge(word)),
                opened: metrics::counter!(names::BREAKER_OPENED.name),
            })
        })
    }
}

/// The states of a circuit, and for each state the value of the label `state` in the metrics.
#[cfg(feature = "metrics")]
const STATES: [(CircuitState, &str); 3] = [
    (CircuitState::Closed, "closed"),
    (CircuitState::Open, "open"),
    (CircuitState::HalfOpen, "half-open"),
];

#[cfg(feature = "metrics")]
impl BreakerGauges {
    fn move_to(&self, state: impl Fn() -> Option<CircuitState>) {
        let mut counted = self.counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let next = state();
        let previous = std::mem::replace(&mut *counted, next);
        if previous != next {
            self.gauge(previous).inspect(|gauge| gauge.decrement(1));
            self.gauge(next).inspect(|gauge| gauge.increment(1));
        }
    }

    fn gauge(&self, state: Option<CircuitState>) -> Option<&metrics::Gauge> {
        let index = STATES.iter().position(|(known, _)| Some(*known) == state)?;
        self.states.get(index)
    }
}

#[cfg(feature = "metrics")]
impl Drop for BreakerMeter {
    fn drop(&mut self) {
        if let Some(gauges) = self.gauges.get() {
            gauges.move_to(|| None);
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use tidegate_testkit::Recorder;

    use super::*;

    fn recorded(run: impl FnOnce(&Recorder)) {
        let recorder = Recorder::new();
        metrics::with_local_recorder(&recorder, || run(&recorder));
    }

    #[test]
    fn each_breaker_is_counted_in_one_state_and_in_none_after_it_is_dropped() {
        recorded(|recorder| {
            let gauge = |state: &str| {
                recorder.gauge(&format!("tidegate_breaker_state{{state={state:?}}}")).unwrap()
            };
            let states = || [gauge("closed"), gauge("half-open"), gauge("open")];
            let (one, other) = (BreakerMeter::default(), BreakerMeter::default());
            (0..3).for_each(|_| one.begin(|| CircuitState::Closed));
            other.begin(|| CircuitState::Closed);
            assert_eq!(states(), [2.0, 0.0, 0.0]);
            one.opened();
            (0..3).for_each(|_| one.changed(|| CircuitState::Open));
            assert_eq!(states(), [1.0, 0.0, 1.0]);
            one.changed(|| CircuitState::HalfOpen);
            assert_eq!(states(), [1.0, 1.0, 0.0]);
            assert_eq!(recorder.counter("tidegate_breaker_opened_total"), Some(1));
            drop(one);
            assert_eq!(states(), [1.0, 0.0, 0.0]);
        });
    }
}
