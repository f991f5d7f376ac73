//! Waiting instead of being refused: [`Limiter::until_ready`] and [`Request::acquire_within`].
//!
//! Needs the feature `tokio`, and a Tokio runtime with its timer.
//!
//! | the policies charged | how a caller waits |
//! |---|---|
//! | all are buckets | one [`reserve`](Request::reserve) call reserves a place in the store; the caller sleeps once |
//! | one is a window | the caller acquires; if refused, it sleeps for `retry_after` plus jitter, and retries |
//!
//! # Buckets: a queue in the store
//!
//! Places are given first come, first served, across all processes that share the store, with one call per
//! request and no polling. The wait is counted from the arrival of the store's answer, so that no caller
//! proceeds before its time by the store's clock. It ends late by the answer's latency and by the resolution
//! of Tokio's timer: a millisecond or two.
//!
//! By the reserved times, at most `B + R·t` is admitted in any interval `t`. A caller that is late by `d`
//! proceeds `d` later, so by wall-clock time it is at most `B + R·(t + d)`, with `d` the greatest lateness.
//!
//! # Windows: retries
//!
//! Windows cannot reserve, so there is no order among waiting callers. The jitter beyond `retry_after` is up to
//! an eighth of it and at most a second. A caller that is refused again was overtaken by another one, so
//! it retries at most once more than others are admitted while it waits. It never retries after its time is
//! over; if a refusal ends later than that, the refusal is returned immediately.
//!
//! A policy with [`block_for`](crate::Policy::block_for) blocks callers that retry too early, and so is of
//! little use here.
//!
//! # Bounds
//!
//! A wait is bounded in time ([`Limiter::max_wait`], or the duration given), and so is the number of waiting
//! callers ([`Limiter::max_waiters`]). One more that would have to wait gets
//! [`ErrorKind::TooManyWaiters`], and nothing is reserved or taken; requests that need not wait are still
//! admitted.
//!
//! # Cancellation
//!
//! A dropped future leaves nothing taken:
//!
//! * **before its time**, its place is refunded: in place if the store answers without waiting, else in a task
//!   on the runtime in which the wait began. The next caller waits as if the place had never been reserved.
//!   Callers already behind it keep their times; so after waits of total cost `C` were cancelled in front of
//!   others, up to `B + R·t + C` may be admitted in an interval `t`, though never more than `B + R·t` counted
//!   from a full bucket on.
//! * **while the call is in flight**, it is not known whether anything was taken: a task completes the
//!   call, and refunds what it took. What a bucket refilled between taking and refunding cannot be
//!   told from the refund: a burst may be larger by that refill, and by at most the cost. (On a fixed window
//!   that ended in between: by at most the cost.)
//!
//! With several policies, this is exact for the one with the longest wait; the shorter wait of another one may
//! be over by then, and that one is refunded as if its call had been in flight.
//!
//! There is one such task per cancelled wait. It ends when the store has answered, or after ten seconds. If
//! the refund fails, or the runtime ends before it was sent, the place stays reserved, as it does **if the
//! process dies**, and passes unused. What is lost is at most the cost of the callers that waited, which
//! is at most what refills in the longest of their waits.
//!
//! # When the store fails
//!
//! An error is returned as it is, and **the call is not sent again**, so that there is at most one charge
//! per request. If only the answer was lost, what the call reserved stays reserved, as if the process had
//! died. A degraded decision is returned: failed open does not wait, failed closed is returned
//! immediately, and a fallback store's place is waited for. Such a place is not refunded when the wait is
//! cancelled, as by then the first store may decide again, which never reserved it.

mod admission;
mod detached;
mod meter;
mod permits;
mod reservation;
mod retry;

use std::future::Future;
use std::time::Duration;

pub use admission::Admission;
pub(crate) use permits::{WaitLimits, Waiters};

use crate::limiter::{MultiRequest, Request, Shared};
use crate::{CallId, Charge, Charges, Decision, Error, ErrorKind, Limiter, Store};
use detached::DetachedRequest;

/// Waiting. Needs the feature `tokio`; see [`waiting`](crate::limiter::waiting).
impl<S: Store + 'static> Limiter<S> {
    /// Sets the longest wait of [`until_ready`](Self::until_ready). Default: 30 s.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.wait_limits.max_wait = wait;
        self
    }

    /// Sets the number of callers that may wait at a time, on this limiter and its clones together.
    /// Default: 1024.
    ///
    /// On buckets a caller counts from its call until it is admitted, as it might have to wait.
    #[must_use]
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.wait_limits.max_waiters = waiters;
        self
    }

    /// The number of callers that wait now, on this limiter and its clones.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.waiting().count()
    }

    /// Waits until a request of cost 1 is admitted, at most [`max_wait`](Self::max_wait).
    ///
    /// Code after `until_ready(…).await?` runs only if the request was admitted: where the wait would be longer, or would
    /// never end, the result is an error. To get a refusal as a [`Decision`] instead, use
    /// [`acquire_within`](Request::acquire_within).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WaitTooLong`] if the wait would be longer than [`max_wait`](Self::max_wait), or
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
    ///     .max_wait(Duration::from_secs(5))
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
    /// Waits at most `max_wait` until the request is admitted; [`Decision::wait`] is how long that took.
    ///
    /// The decision is a refusal if that is not long enough: immediately where that is known. A dropped
    /// future refunds what it took. See [`waiting`](crate::limiter::waiting). Needs the feature `tokio`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooManyWaiters`] if it would have to wait, and [`Limiter::max_waiters`] callers wait;
    /// [`ErrorKind::Unsupported`] without a Tokio runtime; and the store's errors.
    ///
    /// # Panics
    ///
    /// If the runtime was built without a timer, as Tokio's timers do.
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
    /// assert!(decision.is_denied()); // a cost of 6 is never admitted
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn acquire_within(self, max_wait: Duration) -> Result<Decision, Error> {
        let Self { limiter, tenant, subject, cost, id } = self;
        check_has_no_id(id)?;
        let Shared { first: policy, others, .. } = &*limiter.shared;
        let first = Charge { policy, tenant, subject, cost, is_check_only: false };
        let charges = Charges::per_policy(first, others);
        acquire_within(DetachedRequest::new(limiter, charges)?, max_wait).await
    }

    /// Waits until the request is admitted, at most [`Limiter::max_wait`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::until_ready`].
    pub async fn until_ready(self) -> Result<Admission, Error> {
        let max_wait = self.limiter.wait_limits.max_wait;
        Admission::new(self.acquire_within(max_wait).await?, max_wait)
    }
}

/// Waiting for several subjects. Needs the feature `tokio`; see [`waiting`](crate::limiter::waiting).
impl<S: Store + 'static> MultiRequest<'_, S> {
    /// Waits at most `max_wait` until all policies admit the request, as
    /// [`Request::acquire_within`].
    ///
    /// # Errors
    ///
    /// As [`Request::acquire_within`], and as [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, max_wait: Duration) -> Result<Decision, Error> {
        self.check()?;
        check_has_no_id(self.id)?;
        let charges: smallvec::SmallVec<[Charge<'_>; 4]> = self.charges().collect();
        let charges = Charges::from(&charges[..]);
        acquire_within(DetachedRequest::new(self.limiter, charges)?, max_wait).await
    }

    /// Waits until all policies admit the request, at most [`Limiter::max_wait`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::until_ready`], and as [`acquire`](Self::acquire).
    pub async fn until_ready(&self) -> Result<Admission, Error> {
        let max_wait = self.limiter.wait_limits.max_wait;
        Admission::new(self.acquire_within(max_wait).await?, max_wait)
    }
}

async fn acquire_within<S: Store + 'static>(
    request: DetachedRequest<S>,
    max_wait: Duration,
) -> Result<Decision, Error> {
    let limiter = request.limiter();
    let (waiters, limits) = (limiter.waiting().clone(), limiter.wait_limits);
    if max_wait.is_zero() || !request.can_reserve() {
        return retry::acquire(request, max_wait, &waiters, limits).await;
    }
    match waiters.acquire_permit(limits.max_waiters) {
        Some(permit) => reservation::acquire(request, max_wait, permit).await,
        None => reservation::acquire_without_waiting(request, max_wait, limits.max_waiters).await,
    }
}

/// Waiting makes several calls, and refunds a place that is given up.
fn check_has_no_id(id: Option<CallId<'_>>) -> Result<(), Error> {
    match id {
        None => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Unsupported, "a request with an id cannot wait")),
    }
}

fn too_many_waiters(max: usize) -> Error {
    let message = format!("{max} callers wait already, the maximum (`max_waiters`)");
    Error::new(ErrorKind::TooManyWaiters, message)
}
