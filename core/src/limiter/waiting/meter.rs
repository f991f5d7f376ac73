//! The metrics of waiting callers. Without the feature `metrics`, all types here are empty.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

#[cfg(feature = "metrics")]
use crate::telemetry::names;

/// The two gauges of waiting callers: one shows their number, and the other shows the maximum of
/// this number. Each gauge is a sum over all limiters. When this value is dropped, the maximum of
/// its limiter is subtracted from the second gauge.
#[derive(Debug, Default)]
pub(super) struct WaitersMeter {
    #[cfg(feature = "metrics")]
    gauges: OnceLock<WaitersGauges>,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct WaitersGauges {
    waiters: metrics::Gauge,
    limit: metrics::Gauge,
    max: u32,
}

/// A waiting caller. The gauge of waiting callers includes this caller until this value is dropped.
#[must_use = "the caller is counted until this value is dropped"]
#[derive(Debug)]
pub(super) struct CountedWaiter {
    #[cfg(feature = "metrics")]
    waiters: metrics::Gauge,
}

impl WaitersMeter {
    pub(super) fn enter(&self, max: usize) -> CountedWaiter {
        #[cfg(feature = "metrics")]
        {
            let waiters = self.gauges(max).waiters.clone();
            waiters.increment(1);
            CountedWaiter { waiters }
        }
        #[cfg(not(feature = "metrics"))]
        {
            let _ = max;
            CountedWaiter {}
        }
    }

    #[cfg(feature = "metrics")]
    fn gauges(&self, max: usize) -> &WaitersGauges {
        self.gauges.get_or_init(|| {
            names::WAITERS.describe();
            names::WAITERS_LIMIT.describe();
            let limit = metrics::gauge!(names::WAITERS_LIMIT.name);
            let max = u32::try_from(max).unwrap_or(u32::MAX);
            limit.increment(max);
            WaitersGauges { waiters: metrics::gauge!(names::WAITERS.name), limit, max }
        })
    }
}

#[cfg(feature = "metrics")]
impl Drop for WaitersMeter {
    fn drop(&mut self) {
        if let Some(gauges) = self.gauges.get() {
            gauges.limit.decrement(gauges.max);
        }
    }
}

impl Drop for CountedWaiter {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        self.waiters.decrement(1);
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use tidegate_testkit::Recorder;

    use super::*;

    #[test]
    fn a_caller_is_counted_until_it_no_longer_waits() {
        let recorder = Recorder::new();
        metrics::with_local_recorder(&recorder, || {
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
