//! The answer to a request that has waited.

use std::time::Duration;

use super::detached::is_failed_closed;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::policy::format_duration;

/// A request that was admitted, immediately or after a wait.
/// [`until_ready`](crate::Limiter::until_ready) returns this value.
///
/// If a request is refused, `until_ready` returns an error. So an admission need not be checked.
///
/// # How a caller waits
///
/// Waiting needs the feature `tokio`, and a Tokio runtime with its timer. The policies of the
/// request determine how a caller waits:
///
/// | policies | wait |
/// |---|---|
/// | only buckets | One [`reserve`](crate::Request::reserve) call reserves a place in the store. The caller sleeps once. |
/// | at least one window or log | The caller acquires. A refused caller sleeps for `retry_after` plus jitter, and retries. |
///
/// # Buckets: a queue in the store
///
/// The store assigns places in the order of the calls, across all processes that share the store.
/// Each request sends one call and does not poll. The wait starts when the store's answer arrives,
/// so that no caller proceeds before the time of its place by the store's clock. A caller proceeds
/// late by the latency of the answer plus the resolution of Tokio's timer, which is a millisecond
/// or two.
///
/// Let `B` be the burst and `R` the rate of a bucket. If each caller proceeded exactly at the time
/// of its place, at most `B + R·t` would be admitted in any interval `t`. Because a caller proceeds
/// late by up to `d`, at most `B + R·(t + d)` is admitted.
///
/// # Windows: retries
///
/// A window has no places that a caller could reserve, so waiting callers have no order. Each
/// caller waits for `retry_after` plus a random time, the jitter, and then retries. The jitter is
/// at most an eighth of `retry_after`, and at most a second. If `retry_after` exceeds the rest of
/// the caller's maximum wait, the caller gets the refusal immediately.
///
/// A retry is refused only if another caller was admitted first. So if `n` other callers are
/// admitted during the wait of a caller, this caller sends at most `n + 1` retries.
///
/// A policy with [`block_for`](crate::Policy::block_for) blocks a subject after a denial, so that
/// callers wait until the block ends. So waiting is of little use with such a policy.
///
/// # Bounds
///
/// The duration of a wait is bounded by [`Limiter::max_wait`](crate::Limiter::max_wait), or by the
/// duration that the caller gives. The number of waiting callers is bounded by
/// [`Limiter::max_waiters`](crate::Limiter::max_waiters). If this many callers wait and a further
/// caller would have to wait, this caller gets [`ErrorKind::TooManyWaiters`], and nothing is
/// reserved or charged. Requests that need not wait are still admitted.
///
/// # Cancellation
///
/// If the future of a waiting caller is dropped, the charge of the caller is refunded:
///
/// * **Before the time of its place**, a cancelled caller loses its place, and the place is
///   refunded. If the store answers immediately, the drop of the future sends the refund. Otherwise
///   a task sends the refund, on the runtime in which the wait began. The next caller then waits as
///   if the place had never been reserved. Callers that already wait for later places keep their
///   times. So if waits with a total cost of `C` are cancelled, a bucket with burst `B` and rate
///   `R` can admit up to `B + R·t + C` in an interval `t`. If the bucket is full at the start of
///   the interval, it admits at most `B + R·t`.
/// * **While the call is in flight**, a cancelled caller does not know whether the store has
///   charged the request. A task completes the call and refunds the charge. It refunds the whole
///   cost, although the bucket has possibly refilled a part of the charge before the refund. So a
///   burst can be larger by this part. (If a fixed window ended between the charge and the refund,
///   a burst can be larger by at most the cost.)
///
/// If a request has several policies, the refund is exact for the policy with the longest wait. For
/// another policy, the time of the place has possibly already come. The refund for that policy then
/// has the same inaccuracy as a refund while the call is in flight.
///
/// A cancelled wait has at most one task for its refund. The task ends when the store has answered,
/// or after ten seconds.
///
/// In three cases the place of a cancelled caller stays reserved and is not used: the refund fails,
/// the runtime ends before the refund is sent, or the **process dies**. The loss is at most the
/// cost of the waiting callers. So it is at most the refill during the longest of their waits.
///
/// # When the store fails
///
/// The limiter returns an error of the store unchanged. **It does not send the call again**, so
/// that each request is charged at most once. If the store reserved a place and only its answer was
/// lost, the place stays reserved and is not used.
///
/// The limiter also returns degraded decisions. A request that failed open does not wait. A request
/// that failed closed is refused immediately. If a fallback store reserves a place, the caller
/// waits for this place. If that wait is cancelled, the place is not refunded, because the refund
/// would possibly reach the inner store. The inner store would then refund a charge that it never
/// made.
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
