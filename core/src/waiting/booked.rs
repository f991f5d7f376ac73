//! Waiting for a place that the store has booked: buckets.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::order::{Order, is_failed_closed, is_in_store};
use super::{too_many, waiters::Seat};
use crate::{Decision, Error, Operation, Store};

/// Books a place at most `max_wait` away, and waits for it.
pub(super) async fn acquire<S: Store + 'static>(
    order: Order<S>,
    max_wait: Duration,
    _seat: Seat,
) -> Result<Decision, Error> {
    let (order, answer) = order.ask(Operation::Reserve { max_wait }).await;
    let decision = answer?;
    if !decision.wait().is_zero() {
        Place { order: Some(order), decision: &decision, booked: Instant::now() }.come().await;
    }
    Ok(decision)
}

/// Takes what is free at once. Nothing more is booked, as too many wait already.
pub(super) async fn acquire_without_waiting<S: Store + 'static>(
    order: Order<S>,
    max_wait: Duration,
    max_waiters: usize,
) -> Result<Decision, Error> {
    let (_, answer) = order.ask(Operation::Acquire).await;
    let decision = answer?;
    let would_wait = decision.is_denied()
        && !is_failed_closed(&decision)
        && decision.retry_after().is_some_and(|wait| wait <= max_wait);
    if would_wait { Err(too_many(max_waiters)) } else { Ok(decision) }
}

/// A place in the future. Dropped before its time, it is given back.
struct Place<'a, S: Store + 'static> {
    order: Option<Order<S>>,
    decision: &'a Decision,
    /// When the store's answer was here. By the store's clock the wait began a little earlier, so that
    /// a wait from here on never ends early.
    booked: Instant,
}

impl<S: Store> Place<'_, S> {
    /// Waits until its time has come.
    async fn come(self) {
        while let Some(rest) = self.to_come() {
            sleep(rest).await;
        }
    }

    fn to_come(&self) -> Option<Duration> {
        self.decision.wait().checked_sub(self.booked.elapsed()).filter(|rest| !rest.is_zero())
    }
}

impl<S: Store> Drop for Place<'_, S> {
    fn drop(&mut self) {
        if self.to_come().is_some()
            && is_in_store(self.decision)
            && let Some(order) = self.order.take()
        {
            order.give_back(self.decision);
        }
    }
}
