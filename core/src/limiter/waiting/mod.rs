//! Callers that wait until a request is admitted. [`Admission`] documents how.

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

/// Waiting. Needs the feature `tokio`; see [`Admission`].
impl<S: Store + 'static> Limiter<S> {
    /// Sets the maximum wait of [`until_ready`](Self::until_ready). Default: 30 s.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.wait_limits.max_wait = wait;
        self
    }

    /// Sets the maximum number of callers that wait at the same time, on this limiter and its
    /// clones together. Default: 1024.
    ///
    /// A caller that charges only buckets counts from its call until it is admitted, because it
    /// might have to wait.
    #[must_use]
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.wait_limits.max_waiters = waiters;
        self
    }

    /// Returns the number of callers that wait now, on this limiter and its clones.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.shared.waiters.count()
    }

    /// Waits until a request of cost 1 is admitted, at most [`max_wait`](Self::max_wait).
    ///
    /// Code after `until_ready(…).await?` runs only if the request was admitted. If the wait would
    /// be too long, or would never end, this returns an error. To get a refusal as a [`Decision`]
    /// instead, use [`acquire_within`](Request::acquire_within).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WaitTooLong`] if the wait would be longer than
    /// [`max_wait`](Self::max_wait) or would never end. If the call [failed
    /// closed](crate::DegradedAnswer::FailedClosed), returns the kind of the error for which the
    /// store gave no decision. Also returns the errors of
    /// [`acquire_within`](Request::acquire_within).
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

    /// Waits until the request is admitted, at most `max_wait`. Needs the feature `tokio`.
    ///
    /// [`Decision::wait`] returns the duration of the wait. If `max_wait` is not long enough, the
    /// decision is a refusal; if that is known in advance, it is returned immediately. If the
    /// future is dropped, its charge is refunded. See [`Admission`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::TooManyWaiters`] if the request would have to wait and
    /// [`Limiter::max_waiters`] callers wait already, [`ErrorKind::Unsupported`] without a Tokio
    /// runtime or for a request with an id, and the errors of the store.
    ///
    /// # Panics
    ///
    /// Panics if the runtime was built without a timer, as Tokio's timers do.
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

    /// Waits until the request is admitted, at most [`Limiter::max_wait`].
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
    if max_wait.is_zero() || !request.can_reserve() {
        return retry::acquire(request, max_wait, &waiters, limits).await;
    }
    match waiters.acquire_permit(limits.max_waiters) {
        Some(permit) => reservation::acquire(request, max_wait, permit).await,
        None => reservation::acquire_without_waiting(request, max_wait, limits.max_waiters).await,
    }
}

/// Copies a request for its tasks.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] for a request with an id, because waiting sends several calls
/// and refunds an abandoned place.
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

fn too_many_waiters(max: usize) -> Error {
    let message = format!("{max} callers wait already, the maximum (`max_waiters`)");
    Error::new(ErrorKind::TooManyWaiters, message)
}
