//! The service of the client layer.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Request, Response, StatusCode};
use tidegate_core::{MAX_SPAN, Store};
use tokio::time::Instant;
use tower_service::Service;

use super::announcements;
use super::error::ClientError;
use super::retry::{CopyRequest, NoRetry};
use super::settings::Settings;
use super::turn::{NoTurn, Turn};
use crate::fields::ServerLimits;

/// A client that keeps its requests within limits. [`ThrottleLayer`](super::ThrottleLayer) creates
/// it.
///
/// `poll_ready` is always ready. A request first waits for its turn, and then until the inner
/// client is ready. So a request that waits for its turn occupies no connection and no permit of
/// the inner client. The request is sent by the client that has become ready, not by a clone of it.
pub struct Throttle<I, S, R = NoRetry> {
    inner: I,
    settings: Arc<Settings<S, R>>,
}

impl<I, S, R> Throttle<I, S, R> {
    pub(super) fn new(inner: I, settings: Arc<Settings<S, R>>) -> Self {
        Self { inner, settings }
    }
}

impl<I, S, R, B, C> Service<Request<B>> for Throttle<I, S, R>
where
    I: Service<Request<B>, Response = Response<C>> + Clone + Send + 'static,
    I::Future: Send,
    I::Error: Send,
    S: Store + 'static,
    R: CopyRequest<B> + Send + Sync + 'static,
    B: Send + 'static,
    C: Send + 'static,
{
    type Response = Response<C>;
    type Error = ClientError<I::Error>;
    type Future = ThrottleFuture<C, I::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (inner, settings) = (self.inner.clone(), Arc::clone(&self.settings));
        ThrottleFuture(Box::pin(send(inner, settings, request)))
    }
}

async fn send<I, S, R, B, C>(
    mut inner: I,
    settings: Arc<Settings<S, R>>,
    request: Request<B>,
) -> Result<Response<C>, ClientError<I::Error>>
where
    I: Service<Request<B>, Response = Response<C>>,
    S: Store + 'static,
    R: CopyRequest<B>,
{
    let (parts, body) = request.into_parts();
    let subject = (settings.subject)(&parts).ok_or_else(ClientError::no_subject)?;
    let turn = Turn {
        limiter: &settings.limiter,
        announcements: &settings.announcements,
        subject: subject.as_bytes(),
        cost: settings.cost.as_ref().map_or(1, |cost| cost(&parts)),
        deadline: after(settings.max_wait),
    };
    let no_turn = |reason| match reason {
        NoTurn::TooLong(wait) => ClientError::wait_too_long(wait, settings.max_wait),
        NoTurn::Store(error) => ClientError::store(error),
    };
    let mut request = Request::from_parts(parts, body);
    let mut retries = settings.max_retries;

    turn.wait().await.map_err(no_turn)?;
    loop {
        let copy = if retries > 0 { settings.retry.copy(&request) } else { None };
        let was_pending = ready(&mut inner).await.map_err(ClientError::client)?;
        if was_pending && turn.pause().await.map_err(no_turn)?.is_some() {
            turn.wait().await.map_err(no_turn)?;
        }
        let response = inner.call(request).await.map_err(ClientError::client)?;
        let announced = settings.announced(response.status(), response.headers());
        if let Some(span) = announced.filter(|span| !span.is_zero()) {
            let until = after(span);
            settings.announcements.extend(turn.subject, until);
            announcements::block(&settings.limiter, turn.subject, until).await;
        }
        let is_retryable = announced.is_some() && is_refusal(response.status());
        let Some(copy) = copy.filter(|_| is_retryable) else { return Ok(response) };
        if turn.wait().await.is_err() {
            // The retry would have to wait too long, or the store failed. The caller receives the
            // refusal instead.
            return Ok(response);
        }
        request = copy;
        retries -= 1;
    }
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

impl<S, R> Settings<S, R> {
    /// Returns the pause that the response announces, during which the client must not send
    /// requests. Without an announcement, returns the default pause for status 429, and `None` for
    /// any other status.
    fn announced(&self, status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
        let now = SystemTime::now();
        let announced = ServerLimits::read(headers, now);
        let is_error = status.is_client_error() || status.is_server_error();
        // `Retry-After` is about a limit only in an error. In other responses, it is about a
        // redirect or a job.
        let until = if is_error { announced.not_before() } else { announced.exhausted_until() };
        match until {
            Some(until) => Some(until.duration_since(now).unwrap_or_default()),
            None => (status == StatusCode::TOO_MANY_REQUESTS).then_some(self.default_pause),
        }
    }
}

/// Waits until the client is ready. Returns `true` if the client was not ready immediately.
async fn ready<B, I: Service<Request<B>>>(inner: &mut I) -> Result<bool, I::Error> {
    let mut was_pending = false;
    poll_fn(|context| {
        let poll = inner.poll_ready(context);
        was_pending |= poll.is_pending();
        poll
    })
    .await?;
    Ok(was_pending)
}

/// Returns the time that is `span` later than now. A span above 71 years counts as 71 years.
fn after(span: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(span.min(MAX_SPAN)).unwrap_or(now)
}

/// The future of a [`Throttle`]. It is boxed, because a request consists of several asynchronous
/// steps.
pub struct ThrottleFuture<C, E>(Pin<Box<SendFuture<C, E>>>);

type SendFuture<C, E> = dyn Future<Output = Result<Response<C>, ClientError<E>>> + Send;

impl<C, E> Future for ThrottleFuture<C, E> {
    type Output = Result<Response<C>, ClientError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<C, E> fmt::Debug for ThrottleFuture<C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThrottleFuture(..)")
    }
}

// `#[derive(Clone)]` would require that the store implements `Clone`.
impl<I: Clone, S, R> Clone for Throttle<I, S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<I: fmt::Debug, S, R> fmt::Debug for Throttle<I, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("inner", &self.inner)
            .field("settings", &self.settings)
            .finish()
    }
}
