use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that records keep outside of the tables (logs and long subjects), and their bound.
#[derive(Debug)]
pub(crate) struct HeapBudget {
    used: AtomicUsize,
    max: usize,
}

impl HeapBudget {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether `bytes` could be set aside now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used().checked_add(bytes).is_some_and(|sum| sum <= self.max)
    }

    /// Sets bytes aside for what is about to come, if there are as many left.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.max);
        bytes == 0 || self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives back what was set aside: what came of it has been counted by itself.
    pub(crate) fn release(&self, bytes: usize) {
        self.adjust(bytes, 0);
    }

    /// Something that took `before` bytes takes `after` now.
    pub(crate) fn adjust(&self, before: usize, after: usize) {
        // Mostly nothing moves, and then no other thread should hear of it.
        if after > before {
            self.used.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
