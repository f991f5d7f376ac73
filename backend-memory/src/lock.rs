//! The lock of a shard.

use std::thread;
use std::time::Duration;

use crossbeam_utils::Backoff;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// A spin lock on its own cache lines, so that threads that use two shards do not contend for one
/// line.
///
/// The lock is never poisoned. Each change of a shard is complete before any code that could panic
/// runs, so a thread that panics while it holds the lock leaves a consistent shard.
#[repr(align(128))]
pub(crate) struct PaddedLock<T>(SpinMutex<T>);

pub(crate) type Guard<'a, T> = SpinMutexGuard<'a, T>;

/// The sleep between two attempts to lock after the backoff is exhausted.
const SLEEP: Duration = Duration::from_micros(50);

impl<T> PaddedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Returns `None` if another thread holds the lock.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock()
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Waits with exponential backoff: the thread first spins, then yields, then sleeps.
    // During the backoff, the holder can complete several calls before the cache line moves to this
    // core. If the lock is held for longer, its thread was probably preempted. Yielding lets that
    // thread run, and sleeping does so even if its priority is lower.
    #[cold]
    #[inline(never)]
    fn lock_contended(&self) -> Guard<'_, T> {
        let backoff = Backoff::new();
        loop {
            if backoff.is_completed() {
                thread::sleep(SLEEP);
            } else {
                backoff.snooze();
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
    }
}
