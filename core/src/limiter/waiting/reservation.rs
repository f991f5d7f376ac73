//! Waiting for a place that the store has reserved, for buckets.

use std::time::Duration;

use super::detached::{DetachedRequest, is_failed_closed, is_in_store};
use super::{permits::WaiterPermit, too_many_waiters};
use crate::call::Operation;
use crate::decision::Decision;
use crate::error::Error;
use crate::store::Store;
use crate::sync::time::{Instant, sleep};

/// Reserves a place at most `max_wait` in the future, and sleeps until its time.
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

/// Acquires without waiting, because too many callers wait already. Reserves nothing.
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

/// A place in the future, which is refunded if it is dropped before its time.
struct Reservation<'a, S: Store + 'static> {
    request: Option<DetachedRequest<S>>,
    decision: &'a Decision,
    /// The time at which the answer arrived. By the store's clock the wait began a little earlier,
    /// so that a wait from this time never ends early.
    reserved_at: Instant,
}

impl<S: Store> Reservation<'_, S> {
    /// Sleeps until the time of the place.
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
