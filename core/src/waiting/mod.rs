//! Waiting instead of being refused: [`Limiter::until_ready`] and [`Request::acquire_within`].
//!
//! Needs the feature `tokio`, and a Tokio runtime with its timer.
//!
//! | the limiter's policies | how it waits |
//! |---|---|
//! | all are buckets | one [`reserve`](Request::reserve) books a place in the store; the caller sleeps once |
//! | one is a window | the caller asks; refused, it sleeps for `retry_after` and a little more, and asks again |
//!
//! # Buckets: a queue in the store
//!
//! Places are given first come, first served, across all processes that share the store. Nobody polls:
//! one call per request, however long the queue. The wait is counted from the moment at which the
//! store's answer is here, so that nobody passes before its time by the store's clock; it ends late by
//! the answer's way here and the grain of Tokio's timer, a millisecond or two.
//!
//! By their places, at most `B + R·t` pass in any interval `t`. By the clock on the wall, who is late
//! by `d` passes `d` later, so at most `B + R·(t + d)`, with `d` the greatest lateness.
//!
//! # Windows: asking again
//!
//! Nothing can be booked, so there is no order among those who wait. The time beyond `retry_after` is
//! random, up to an eighth of it and at most a second, so that not all ask again at one instant. Since
//! `retry_after` is a promise, who is refused again was overtaken: a caller asks at most once more
//! than others pass while it waits. It never asks after its time is over; if the end of a
//! refusal lies beyond, the refusal is returned at once.
//!
//! A policy with [`block_for`](crate::Policy::block_for) punishes who asks too early, and so is of
//! little use here.
//!
//! # Bounds
//!
//! A wait is bounded in time ([`Limiter::longest_wait`], or the time given), and so is the number of
//! those who wait ([`Limiter::max_waiters`]). One more that would have to wait gets
//! [`ErrorKind::TooManyWaiters`], and nothing is booked or taken; what need not wait passes all the same.
//!
//! # Cancelled waits
//!
//! A future that is dropped takes nothing with it:
//!
//! * **before its time has come**, its place is given back: at once if the store answers at once, else
//!   in a task on the runtime in which the wait began. The next comer waits as if it had never been.
//!   Those who are behind it already keep their times; so after waits of cost `C` were cancelled in front
//!   of others, up to `B + R·t + C` may pass in an interval `t`, though never more than `B + R·t`
//!   counted from a full bucket on.
//! * **while the call is on its way**, whether anything was taken is not known: the call is carried to
//!   its end in a task, and what it turns out to have taken is given back. What came back of a bucket
//!   by itself meanwhile cannot be told from it: a burst may be larger by what refills between taking and
//!   giving back, and by at most the cost. (Of a fixed window that ended meanwhile: by at most the cost.)
//!
//! Of several policies, this is exact for the one that makes the caller wait longest; a shorter wait of
//! another may be over by then, and that one stands as if its call had been on its way.
//!
//! Such a task ends when the store has answered, and after ten seconds in any case; there is one per
//! cancelled wait. If the refund fails, or the runtime ends before it was sent, the place stays
//! booked, as it does **if the process dies**: its time comes, and nobody passes. Lost is at most the
//! cost of those who waited, which is at most what refills in the longest of their waits; after that
//! time everything is as if they had passed.
//!
//! # When the store fails
//!
//! An error is returned as it is; **the call is not made again**, so that there is at most one charge
//! per request. If its answer was lost, what it may have booked stays booked, as if the process had
//! died. A degraded decision passes through: failed open does not wait, failed closed is returned at
//! once, and fallen back to another store waits for the place that the other has given. Such a place is not
//! given back when cancelled, as by then the first store may be in charge again, which never gave it.

mod admission;
mod asked;
mod booked;
mod order;
mod waiters;

use std::future::Future;
use std::time::Duration;

pub use admission::Admission;
pub(crate) use waiters::{Bounds, Waiters};

use crate::limiter::{MultiRequest, Request};
use crate::{Charge, Decision, Error, ErrorKind, Limiter, Store};
use order::Order;

/// Waiting. Needs the feature `tokio`; see [`waiting`](crate::waiting).
impl<S: Store + 'static> Limiter<S> {
    /// The same limiter, but [`until_ready`](Self::until_ready) waits at most this long. Default: 30 s.
    #[must_use]
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.bounds.longest_wait = wait;
        self
    }

    /// The same limiter, on which at most so many callers wait. Default: 1024. All clones are counted
    /// together.
    ///
    /// On buckets a caller counts from when it asks until it may pass, as it might have to wait.
    #[must_use]
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.bounds.max_waiters = waiters;
        self
    }

    /// How many callers wait now, on this limiter and all of its clones.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiting().count()
    }

    /// Waits until a request of cost 1 may pass, at most [`longest_wait`](Self::longest_wait).
    ///
    /// What comes after `until_ready(…).await?` was admitted: where the wait would be longer, or would
    /// never end, the result is an error. To get a refusal as a [`Decision`] instead, use
    /// [`acquire_within`](Request::acquire_within).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WaitTooLong`] if the wait would be longer than [`longest_wait`](Self::longest_wait), or
    /// for ever; of a call that [failed closed](crate::DegradedAnswer::FailedClosed), the kind for which the
    /// store gave no decision; and as [`acquire_within`](Request::acquire_within).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), ["gcra 100/1s burst 1".parse()?])?
    ///     .longest_wait(Duration::from_secs(5))
    ///     .max_waiters(100);
    /// for _ in 0..3 {
    ///     limiter.until_ready("partner").await?; // now, 10 ms later, 20 ms later
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn until_ready<'a>(
        &'a self,
        subject: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> impl Future<Output = Result<Admission, Error>> + Send + 'a {
        self.subject(subject).until_ready()
    }
}

impl<'a, S: Store + 'static> Request<'a, S> {
    /// Waits at most `max_wait` until the request may pass; [`Decision::wait`] says how long that was.
    ///
    /// The decision is a refusal if that is not long enough: at once if it is known before. A dropped
    /// future gives back what it took. See [`waiting`](crate::waiting). Needs the feature `tokio`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooManyWaiters`] if it would have to wait, and as many as may wait already;
    /// [`ErrorKind::Unsupported`] without a Tokio runtime; and whatever the store's are.
    ///
    /// # Panics
    ///
    /// If the runtime was built without its timer, as all of Tokio's timers do.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limiter = Limiter::new(MemoryStore::new(), ["token-bucket 100/1s burst 5".parse()?])?;
    /// let wait = Duration::from_millis(500);
    /// assert!(limiter.subject("alice").cost(5).acquire_within(wait).await?.wait().is_zero());
    ///
    /// let decision = limiter.subject("alice").cost(2).acquire_within(wait).await?;
    /// assert!(decision.is_allowed() && decision.wait() <= Duration::from_millis(20));
    ///
    /// let decision = limiter.subject("alice").cost(6).acquire_within(wait).await?;
    /// assert!(decision.is_denied()); // 6 never pass at once
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn acquire_within(self, max_wait: Duration) -> Result<Decision, Error> {
        let Self { limiter, tenant, subject, cost } = self;
        let charges =
            limiter.policies().iter().map(|policy| Charge { policy, tenant, subject, cost });
        acquire_within(Order::new(limiter, charges)?, max_wait).await
    }

    /// Waits until the request may pass, at most [`Limiter::longest_wait`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::until_ready`].
    pub async fn until_ready(self) -> Result<Admission, Error> {
        let max_wait = self.limiter.bounds.longest_wait;
        Admission::new(self.acquire_within(max_wait).await?, max_wait)
    }
}

/// Waiting for several subjects. Needs the feature `tokio`; see [`waiting`](crate::waiting).
impl<S: Store + 'static> MultiRequest<'_, S> {
    /// Waits at most `max_wait` until all policies admit the request, as
    /// [`Request::acquire_within`].
    ///
    /// # Errors
    ///
    /// As [`Request::acquire_within`], and as [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, max_wait: Duration) -> Result<Decision, Error> {
        self.check()?;
        acquire_within(Order::new(self.limiter, self.charges())?, max_wait).await
    }

    /// Waits until all policies admit the request, at most [`Limiter::longest_wait`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::until_ready`], and as [`acquire`](Self::acquire).
    pub async fn until_ready(&self) -> Result<Admission, Error> {
        let max_wait = self.limiter.bounds.longest_wait;
        Admission::new(self.acquire_within(max_wait).await?, max_wait)
    }
}

async fn acquire_within<S: Store + 'static>(
    order: Order<S>,
    max_wait: Duration,
) -> Result<Decision, Error> {
    let limiter = order.limiter();
    let (waiters, bounds) = (limiter.waiting().clone(), limiter.bounds);
    if max_wait.is_zero() || !order.can_reserve() {
        return asked::acquire(order, max_wait, &waiters, bounds).await;
    }
    match waiters.take_seat(bounds.max_waiters) {
        Some(seat) => booked::acquire(order, max_wait, seat).await,
        None => booked::acquire_without_waiting(order, max_wait, bounds.max_waiters).await,
    }
}

fn too_many(most: usize) -> Error {
    let message = format!("{most} callers wait already, as many as may (`max_waiters`)");
    Error::new(ErrorKind::TooManyWaiters, message)
}
