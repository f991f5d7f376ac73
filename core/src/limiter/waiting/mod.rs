//! Callers that wait until a request is admitted. [`Admission`] documents how a caller waits.

mod admission;
mod detached;
mod meter;
mod permits;
mod reservation;
mod retry;

use std::future::Future;
use std::time::Duration;

pub use admission::Admission;
pub(super) use permits::{WaitLimits, Waiters};

use super::Limiter;
use super::multi::MultiRequest;
use super::operations::async_operations;
use super::request::Request;
use crate::call::{CallId, Charges};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::store::Store;
use detached::DetachedRequest;
pub(super) use detached::is_failed_closed;

impl<S: Store + 'static> Limiter<S> {
    /// Sets the maximum wait of [`until_ready`](Self::until_ready). The default is 30 s.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.wait_limits.max_wait = wait;
        self
    }

    /// Sets the maximum number of callers that wait at the same time, on this limiter and its
    /// clones together. The default is 1024.
    ///
    /// A caller that charges only buckets counts as waiting from its call until its admission,
    /// because before the call the limiter does not know whether the caller must wait.
    #[must_use]
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.wait_limits.max_waiters = waiters;
        self
    }

    /// Returns the number of callers that wait now, on this limiter and its clones together.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.shared.waiters.count()
    }

    /// Waits until a request of cost 1 is admitted. The wait is at most
    /// [`max_wait`](Self::max_wait).
    ///
    /// Code after `until_ready(…).await?` runs only if the request was admitted. If the wait would
    /// be longer than the maximum or would never end, this method returns an error.
    /// [`acquire_within`](Request::acquire_within) instead returns a refusal as a [`Decision`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WaitTooLong`] if the wait would be longer than
    /// [`max_wait`](Self::max_wait), or would never end. If the call [failed
    /// closed](crate::DegradedAnswer::FailedClosed), returns an error of the same kind as the
    /// store's error. Also returns the errors of [`acquire_within`](Request::acquire_within).
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

async_operations! {
    [Store + 'static]

    /// Waits until the request is admitted. The wait is at most `max_wait`. Needs the feature
    /// `tokio`.
    ///
    /// [`Decision::wait`] returns the duration of the wait. If the request cannot be admitted
    /// within `max_wait`, the decision is a refusal. The limiter returns this refusal as soon as it
    /// knows that the wait would be too long. If the future is dropped, the charge of the request
    /// is refunded. See [`Admission`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::TooManyWaiters`] if the request would have to wait and
    /// [`Limiter::max_waiters`] callers already wait. Returns [`ErrorKind::Unsupported`] without a
    /// Tokio runtime, and for a request with an id. Also returns the errors of the store.
    ///
    /// # Panics
    ///
    /// Panics if the runtime was built without a timer, because Tokio's timers panic in this case.
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
    acquire_within(request, max_wait: Duration) -> Decision {
        let request = detach(request.limiter, request.charges()?, request.id)?;
        acquire_within(request, max_wait).await
    }

    /// Waits until the request is admitted. The wait is at most [`Limiter::max_wait`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Limiter::until_ready`].
    until_ready(request) -> Admission {
        let max_wait = request.limiter.wait_limits.max_wait;
        let request = detach(request.limiter, request.charges()?, request.id)?;
        Admission::new(acquire_within(request, max_wait).await?, max_wait)
    }
}

async fn acquire_within<S: Store + 'static>(
    request: DetachedRequest<S>,
    max_wait: Duration,
) -> Result<Decision, Error> {
    let limiter = request.limiter();
    let (waiters, limits) = (limiter.shared.waiters.clone(), limiter.wait_limits);
    if max_wait.is_zero() || !request.can_reserve().await {
        return retry::acquire(request, max_wait, &waiters, limits).await;
    }
    match waiters.acquire_permit(limits.max_waiters) {
        Some(permit) => reservation::acquire(request, max_wait, permit).await,
        None => reservation::acquire_without_waiting(request, max_wait, limits.max_waiters).await,
    }
}

/// Copies a request, so that the copy can be moved into tasks. Returns [`ErrorKind::Unsupported`]
/// for a request with an id. The reason is that an id belongs to a single call, but a wait can send
/// several calls, such as retries or a refund.
fn detach<S: Store + 'static>(
    limiter: &Limiter<S>,
    charges: Charges<'_>,
    id: Option<CallId<'_>>,
) -> Result<DetachedRequest<S>, Error> {
    match id {
        None => DetachedRequest::new(limiter, charges),
        Some(_) => Err(Error::new(ErrorKind::Unsupported, "a request with an id cannot wait")),
    }
}

pub(super) fn too_many_waiters(max: usize) -> Error {
    let message = format!("{max} callers wait already, the maximum (`max_waiters`)");
    Error::new(ErrorKind::TooManyWaiters, message)
}
