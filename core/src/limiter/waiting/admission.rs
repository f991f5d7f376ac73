//! The answer to a request that has waited.

use std::time::Duration;

use super::detached::is_failed_closed;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::policy::format_duration;

/// A request that was admitted, immediately or after a wait: the answer of
/// [`until_ready`](crate::Limiter::until_ready).
///
/// A refusal is an error instead, so that an admission need not be checked.
///
/// # How a caller waits
///
/// Waiting needs the feature `tokio`, and a Tokio runtime with its timer. It depends on the
/// policies that are charged:
///
/// | policies | wait |
/// |---|---|
/// | only buckets | One [`reserve`](crate::Request::reserve) call reserves a place in the store. The caller sleeps once. |
/// | at least one window or log | The caller acquires. If it is refused, it sleeps for `retry_after` plus jitter, and retries. |
///
/// # Buckets: a queue in the store
///
/// The store gives out places in the order of the calls, across all processes that share it. Each
/// request sends one call and does not poll. The wait is counted from the arrival of the store's
/// answer, so that no caller proceeds before its time by the store's clock. A caller proceeds later
/// than its time by the latency of the answer and the resolution of Tokio's timer: a millisecond or
/// two.
///
/// By the reserved times, at most `B + R·t` is admitted in any interval `t`, for a burst `B` and a
/// rate `R`. By wall-clock time it is at most `B + R·(t + d)`, where `d` is the maximum delay of a
/// caller.
///
/// # Windows: retries
///
/// Windows cannot reserve, so that waiting callers have no order. The jitter beyond `retry_after`
/// is at most an eighth of it and at most a second. A caller is refused again only if another
/// caller was admitted before it. It therefore retries at most once more than other callers are
/// admitted while it waits. It never retries after its time is over: if a refusal lasts longer, the
/// refusal is returned immediately.
///
/// A policy with [`block_for`](crate::Policy::block_for) blocks callers that retry too early, so
/// that it is of little use here.
///
/// # Bounds
///
/// The duration of a wait is bounded ([`Limiter::max_wait`](crate::Limiter::max_wait), or the given
/// duration), and so is the number of waiting callers
/// ([`Limiter::max_waiters`](crate::Limiter::max_waiters)). A further caller that would have to
/// wait gets [`ErrorKind::TooManyWaiters`], and nothing is reserved or charged. Requests that need
/// not wait are still admitted.
///
/// # Cancellation
///
/// If the future of a waiting caller is dropped, its charge is refunded:
///
/// * **Before its time**, its place is refunded. If the store answers immediately, the drop does
///   this; else a task on the runtime in which the wait began. The next caller then waits as if the
///   place had never been reserved. Callers that already wait after the place keep their times. If
///   waits of a total cost `C` were cancelled before them, up to `B + R·t + C` may be admitted in
///   an interval `t`, but never more than `B + R·t` from the time at which the bucket was full.
/// * **While the call is in flight**, the caller does not know whether it charged. A task completes
///   the call and refunds the charge. The tokens that a bucket refilled between the charge and
///   the refund cannot be distinguished from the refund. A burst may therefore be larger by that
///   refill, at most by the cost. (With a fixed window that ended between the two: at most by the
///   cost.)
///
/// With several policies, this is exact for the policy with the longest wait. The wait of another
/// policy may be over already. Its charge is refunded as if the call had been in flight.
///
/// There is one such task per cancelled wait. It ends when the store has answered, or after ten
/// seconds. If the refund fails, if the runtime ends before the refund is sent, or if the **process
/// dies**, the place stays reserved and passes unused. The loss is at most the cost of the waiting
/// callers, and thus at most the refill during the longest of their waits.
///
/// # When the store fails
///
/// An error is returned unchanged, and **the call is not sent again**, so that each request is
/// charged at most once. If only the answer was lost, the place stays reserved, as after the death
/// of the process.
///
/// A degraded decision is returned. A request that failed open does not wait. A request that failed
/// closed is refused immediately. The place of a fallback store is waited for. If that wait is
/// cancelled, the place is not refunded, because the first store may decide again by then and would
/// refund what it never charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission(Decision);

impl Admission {
    pub(super) fn new(decision: Decision, max_wait: Duration) -> Result<Self, Error> {
        if decision.is_allowed() {
            return Ok(Self(decision));
        }
        if let Some(degraded) = decision.degraded().filter(|_| is_failed_closed(&decision)) {
            return Err(Error::new(degraded.reason, "refused, because the store gave no decision"));
        }
        let message = match decision.retry_after() {
            Some(wait) => format!(
                "the wait would be {}; it must be at most {} (`max_wait`)",
                format_duration(wait),
                format_duration(max_wait)
            ),
            None => "the cost is above the limit, so that it is never admitted".to_owned(),
        };
        Err(Error::new(ErrorKind::WaitTooLong, message))
    }

    /// Returns the time for which the request has waited.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.0.wait()
    }

    /// Returns the decision, which is never a refusal.
    pub fn decision(&self) -> &Decision {
        &self.0
    }
}
