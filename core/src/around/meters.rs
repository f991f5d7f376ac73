//! What those around a store have to tell an operator. Without the feature `metrics` all of it is empty.
//!
//! As in an observed store, each is looked up when it is first needed.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

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

/// What a circuit breaker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Calls pass.
    Closed,
    /// A probe is under way.
    HalfOpen,
    /// No call passes.
    Open,
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
    state: std::sync::Mutex<Option<BreakerState>>,
    states: [metrics::Gauge; 3],
    opened: metrics::Counter,
}

impl BreakerMeter {
    /// The breaker is in this state now. Cheap where that is no news, so that each call may say it.
    pub(crate) fn is(&self, state: BreakerState) {
        #[cfg(feature = "metrics")]
        self.gauges().move_to(Some(state));
        #[cfg(not(feature = "metrics"))]
        let _ = state;
    }

    #[cfg(feature = "metrics")]
    fn gauges(&self) -> &BreakerGauges {
        self.gauges.get_or_init(|| {
            names::BREAKER_STATE.describe();
            names::BREAKER_OPENED.describe();
            let gauge = |state| metrics::gauge!(names::BREAKER_STATE.name, "state" => state);
            Box::new(BreakerGauges {
                state: std::sync::Mutex::new(None),
                states: ["closed", "half-open", "open"].map(gauge),
                opened: metrics::counter!(names::BREAKER_OPENED.name),
            })
        })
    }
}

#[cfg(feature = "metrics")]
impl BreakerGauges {
    fn move_to(&self, next: Option<BreakerState>) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *state == next {
            return;
        }
        if let Some(previous) = std::mem::replace(&mut *state, next) {
            self.states[previous as usize].decrement(1);
        }
        if let Some(next) = next {
            self.states[next as usize].increment(1);
        }
        if next == Some(BreakerState::Open) {
            self.opened.increment(1);
        }
    }
}

#[cfg(feature = "metrics")]
impl Drop for BreakerMeter {
    fn drop(&mut self) {
        if let Some(gauges) = self.gauges.get() {
            gauges.move_to(None);
        }
    }
}

/// How many wait of those who may, of one limiter among all of this process. Gone with it.
#[derive(Debug, Default)]
pub(crate) struct WaitersMeter {
    #[cfg(feature = "metrics")]
    gauges: OnceLock<WaitersGauges>,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct WaitersGauges {
    waiters: metrics::Gauge,
    limit: metrics::Gauge,
    most: u32,
}

/// Somebody who waits, until this is dropped.
#[must_use = "who is dropped at once does not wait"]
#[derive(Debug)]
pub(crate) struct Waiter {
    #[cfg(feature = "metrics")]
    waiters: metrics::Gauge,
}

impl WaitersMeter {
    /// One more waits, of at most so many.
    pub(crate) fn enter(&self, most: usize) -> Waiter {
        #[cfg(feature = "metrics")]
        {
            let waiters = self.gauges(most).waiters.clone();
            waiters.increment(1);
            Waiter { waiters }
        }
        #[cfg(not(feature = "metrics"))]
        {
            let _ = most;
            Waiter {}
        }
    }

    #[cfg(feature = "metrics")]
    fn gauges(&self, most: usize) -> &WaitersGauges {
        self.gauges.get_or_init(|| {
            names::WAITERS.describe();
            names::WAITERS_LIMIT.describe();
            let limit = metrics::gauge!(names::WAITERS_LIMIT.name);
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            limit.increment(most);
            WaitersGauges { waiters: metrics::gauge!(names::WAITERS.name), limit, most }
        })
    }
}

#[cfg(feature = "metrics")]
impl Drop for WaitersMeter {
    fn drop(&mut self) {
        if let Some(gauges) = self.gauges.get() {
            gauges.limit.decrement(gauges.most);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        self.waiters.decrement(1);
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
            one.is(BreakerState::Closed);
            other.is(BreakerState::Closed);
            assert_eq!(states(), [2.0, 0.0, 0.0]);
            // Each call may say it again.
            (0..3).for_each(|_| one.is(BreakerState::Open));
            assert_eq!(states(), [1.0, 0.0, 1.0]);
            one.is(BreakerState::HalfOpen);
            assert_eq!(states(), [1.0, 1.0, 0.0]);
            one.is(BreakerState::Open);
            assert_eq!(recorder.counter("tidegate_breaker_opened_total"), Some(2));
            drop(one);
            assert_eq!(states(), [1.0, 0.0, 0.0]);
        });
    }

    #[test]
    fn who_waits_is_counted_until_he_waits_no_longer() {
        recorded(|recorder| {
            let gauge = |name| recorder.gauge(name).unwrap();
            let (one, other) = (WaitersMeter::default(), WaitersMeter::default());
            let (first, second) = (one.enter(10), one.enter(10));
            let third = other.enter(5);
            assert_eq!(gauge("tidegate_waiters"), 3.0);
            assert_eq!(gauge("tidegate_waiters_limit"), 15.0);
            drop(first);
            drop(one);
            assert_eq!(gauge("tidegate_waiters"), 2.0);
            assert_eq!(gauge("tidegate_waiters_limit"), 5.0);
            drop((second, third));
            assert_eq!(gauge("tidegate_waiters"), 0.0);
        });
    }
}
