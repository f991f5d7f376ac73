//! Waiting for a place that the store has reserved in the queue of a bucket.

use std::time::Duration;

use super::detached::{DetachedRequest, is_failed_closed, is_in_store};
use super::{permits::WaiterPermit, too_many_waiters};
use crate::call::Operation;
use crate::decision::Decision;
use crate::error::Error;
use crate::store::Store;
use crate::sync::time::{Instant, sleep};

/// Reserves a place at most `max_wait` in the future, and sleeps until the time of the place.
pub(super) async fn acquire<S: Store + 'static>(
    request: DetachedRequest<S>,
    max_wait: Duration,
    _permit: WaiterPermit,
) -> Result<Decision, Error> {
    let (request, answer) = request.send(Operation::Reserve { max_wait }).await;
    let decision = answer?;
    if !decision.wait().is_zero() {
        let reserved_at = Instant::now();
        Reservation { request: Some(request), decision: &decision, reserved_at }.elapse().await;
    }
    Ok(decision)
}

/// Acquires without a wait and without a reserved place, because too many callers already wait.
/// Returns an error if the request would have to wait.
pub(super) async fn acquire_without_waiting<S: Store + 'static>(
    request: DetachedRequest<S>,
    max_wait: Duration,
    max_waiters: usize,
) -> Result<Decision, Error> {
    let (_, answer) = request.send(Operation::Acquire).await;
    let decision = answer?;
    let would_wait = decision.is_denied()
        && !is_failed_closed(&decision)
        && decision.retry_after().is_some_and(|wait| wait <= max_wait);
    if would_wait { Err(too_many_waiters(max_waiters)) } else { Ok(decision) }
}

/// A reserved place. If this value is dropped before the time of the place, the place is refunded.
struct Reservation<'a, S: Store + 'static> {
    request: Option<DetachedRequest<S>>,
    decision: &'a Decision,
    /// The time at which the answer to the reservation arrived. The store computed the wait before
    /// the answer arrived, so a wait that starts at this time never ends too early.
    reserved_at: Instant,
}

impl<S: Store> Reservation<'_, S> {
    async fn elapse(self) {
        while let Some(remaining) = self.remaining() {
            sleep(remaining).await;
        }
    }

    fn remaining(&self) -> Option<Duration> {
        let remaining = self.decision.wait().checked_sub(self.reserved_at.elapsed());
        remaining.filter(|remaining| !remaining.is_zero())
    }
}

impl<S: Store> Drop for Reservation<'_, S> {
    fn drop(&mut self) {
        if self.remaining().is_some()
            && is_in_store(self.decision)
            && let Some(request) = self.request.take()
        {
            request.refund(self.decision);
        }
    }
}
