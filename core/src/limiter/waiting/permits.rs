//! The number of waiting callers of a limiter, and the maximum of this number.

use std::sync::Arc;
use std::time::Duration;

use super::meter::{CountedWaiter, WaitersMeter};
use crate::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimits {
    pub(crate) max_wait: Duration,
    pub(crate) max_waiters: usize,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self { max_wait: Duration::from_secs(30), max_waiters: 1024 }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Waiters(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: AtomicUsize,
    meter: WaitersMeter,
}

impl Waiters {
    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Returns a permit to wait. The caller counts as waiting until the permit is dropped. Returns
    /// `None` if `max` callers already wait.
    pub(crate) fn acquire_permit(&self, max: usize) -> Option<WaiterPermit> {
        let one_more = |count: usize| (count < max).then_some(count + 1);
        // The memory order is relaxed, because threads share no other data through this counter.
        self.0.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(WaiterPermit { _counted: self.0.meter.enter(max), waiters: self.clone() })
    }
}

#[derive(Debug)]
#[must_use = "the caller counts as waiting until the permit is dropped"]
pub(crate) struct WaiterPermit {
    waiters: Waiters,
    _counted: CountedWaiter,
}

impl Drop for WaiterPermit {
    fn drop(&mut self) {
        self.waiters.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
