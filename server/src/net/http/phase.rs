use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The phase of an HTTP connection, as a number. The number is even while the connection waits for
/// a request, and odd while the server answers a request.
///
/// The HTTP service increments the number of the phase, and the [`Timed`](super::timed::Timed)
/// stream of the connection reads this number. Both run in the task of the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase(Arc<AtomicUsize>);

impl Phase {
    /// Enters the next phase. The HTTP service calls this function when a request has arrived, and
    /// again when the request has been answered.
    pub(super) fn next(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns `true` if a request is being answered in the phase with this number.
pub(super) fn is_answering(number: usize) -> bool {
    number % 2 == 1
}
