//! The lock of a part of the store (shard).

use std::thread;
use std::time::Duration;

use crossbeam_utils::Backoff;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// A spin lock with the value that it guards, on its own cache lines. Therefore two threads that
/// use different parts of the store (shards) do not contend for a cache line.
///
/// The lock is never poisoned. Each change of a part of the store (shard) is complete before any
/// code runs that could panic. So the shard is consistent even if a thread panics while it holds
/// the lock.
#[repr(align(128))]
pub(crate) struct PaddedLock<T>(SpinMutex<T>);

pub(crate) type Guard<'a, T> = SpinMutexGuard<'a, T>;

/// The sleep between two attempts to lock, after the backoff is exhausted.
const SLEEP: Duration = Duration::from_micros(50);

impl<T> PaddedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Locks the value, or returns `None` if another thread holds the lock.
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

    /// Waits for the lock with exponential backoff. The waiting thread first spins, then yields,
    /// then sleeps.
    // Spinning leaves the cache line of the lock on the core of the holder, which can complete
    // several calls in this time. If the lock is held for longer, the operating system has probably
    // preempted the holder. Yielding lets the holder run. Sleeping lets the holder run even if its
    // priority is lower.
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
