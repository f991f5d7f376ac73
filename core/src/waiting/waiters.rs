//! How many wait, and how many may.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::around::meters::{Waiter, WaitersMeter};

/// What a limiter's waits are bounded by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) longest_wait: Duration,
    pub(crate) max_waiters: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { longest_wait: Duration::from_secs(30), max_waiters: 1024 }
    }
}

/// How many callers wait.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiters(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    count: AtomicUsize,
    meter: WaitersMeter,
}

impl Waiters {
    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// One more, unless there are `most` already. It counts until the seat is dropped.
    pub(crate) fn take_seat(&self, most: usize) -> Option<Seat> {
        let one_more = |count: usize| (count < most).then_some(count + 1);
        // Nothing is published with the count, so that no order but its own is needed.
        self.0.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Seat { _told: self.0.meter.enter(most), of: self.clone() })
    }
}

/// A caller that counts as waiting.
#[derive(Debug)]
#[must_use = "a seat counts until it is dropped"]
pub(crate) struct Seat {
    of: Waiters,
    _told: Waiter,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.of.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
