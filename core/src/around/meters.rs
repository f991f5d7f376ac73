//! What those around a store have to tell an operator. Without the feature `metrics` all of it is empty.
//!
//! As in an observed store, each is looked up when it is first needed.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

use super::CircuitState;
#[cfg(feature = "metrics")]
use super::observed::names;

/// How often a deny cache answered, and how often it did not.
#[derive(Debug, Default)]
pub(crate) struct CacheMeter {
    #[cfg(feature = "metrics")]
    counters: OnceLock<[metrics::Counter; 2]>,
}

impl CacheMeter {
    /// A call was answered from the cache.
    pub(crate) fn hit(&self) {
        #[cfg(feature = "metrics")]
        self.counters()[0].increment(1);
    }

    /// A call was passed on to the store.
    pub(crate) fn miss(&self) {
        #[cfg(feature = "metrics")]
        self.counters()[1].increment(1);
    }

    #[cfg(feature = "metrics")]
    fn counters(&self) -> &[metrics::Counter; 2] {
        self.counters.get_or_init(|| {
            names::DENY_CACHE.describe();
            ["hit", "miss"]
                .map(|answer| metrics::counter!(names::DENY_CACHE.name, "answer" => answer))
        })
    }
}

/// The state of one circuit breaker, among all of this process. Gone with it.
#[derive(Debug, Default)]
pub(crate) struct BreakerMeter {
    #[cfg(feature = "metrics")]
    gauges: OnceLock<Box<BreakerGauges>>,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct BreakerGauges {
    /// Where this breaker is counted now.
    counted: std::sync::Mutex<Option<CircuitState>>,
    /// In the order in which the states are declared.
    states: [metrics::Gauge; 3],
    opened: metrics::Counter,
}

impl BreakerMeter {
    /// The state is this, or has been all along: of no news after the first time.
    pub(crate) fn begin(&self, state: impl Fn() -> CircuitState) {
        #[cfg(feature = "metrics")]
        if self.gauges.get().is_none() {
            self.changed(state);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = state;
    }

    /// The state may have changed. It is asked for when nobody else can tell of another, so that what is
    /// told last is what is so.
    pub(crate) fn changed(&self, state: impl Fn() -> CircuitState) {
        #[cfg(feature = "metrics")]
        self.gauges().move_to(|| Some(state()));
        #[cfg(not(feature = "metrics"))]
        let _ = state;
    }

    /// It was opened.
    pub(crate) fn opened(&self) {
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

/// The states, and the words for them.
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
        let place = STATES.iter().position(|(known, _)| Some(*known) == state)?;
        self.states.get(place)
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

    /// Runs with a recorder of its own.
    fn recorded(run: impl FnOnce(&Recorder)) {
        let recorder = Recorder::new();
        metrics::with_local_recorder(&recorder, || run(&recorder));
    }

    #[test]
    fn a_cache_counts_its_hits_and_its_misses() {
        recorded(|recorder| {
            let meter = CacheMeter::default();
            meter.miss();
            (0..3).for_each(|_| meter.hit());
            let count = |answer| {
                recorder.counter(&format!("tidegate_deny_cache_total{{answer={answer:?}}}"))
            };
            assert_eq!((count("hit"), count("miss")), (Some(3), Some(1)));
        });
    }

    #[test]
    fn each_breaker_is_in_one_state_and_in_none_once_it_is_gone() {
        recorded(|recorder| {
            let gauge = |state: &str| {
                recorder.gauge(&format!("tidegate_breaker_state{{state={state:?}}}")).unwrap()
            };
            let states = || [gauge("closed"), gauge("half-open"), gauge("open")];
            let (one, other) = (BreakerMeter::default(), BreakerMeter::default());
            // Each call begins.
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
