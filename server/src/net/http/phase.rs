use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a connection does: an even number while it waits for a request, an odd one while it answers one.
///
/// The service counts it up, and the stream below reads it. Both run in the task of the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase(Arc<AtomicUsize>);

impl Phase {
    /// A request has come, or was answered.
    pub(super) fn next(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a request is being answered in the phase of this number.
pub(super) fn is_answering(number: usize) -> bool {
    number % 2 == 1
}
