//! How many wait, and how many may.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

#[cfg(feature = "metrics")]
use crate::around::observed::names;

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
