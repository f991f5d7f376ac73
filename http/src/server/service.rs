//! The service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tidegate_core::Store;
use tower_service::Service;

use super::decide::{decide, decide_now};
use super::future::ResponseFuture;
use super::refusal::{ProblemJson, Respond};
use super::shared::Shared;

/// A service behind limits. Made by [`RateLimitLayer`](super::RateLimitLayer).
///
/// The inner service that was made ready by `poll_ready` is the one that is called. A request that is
/// refused never reaches it.
pub struct RateLimit<Svc, S, R = ProblemJson> {
    inner: Svc,
    shared: Arc<Shared<S, R>>,
}

impl<Svc, S, R> RateLimit<Svc, S, R> {
    pub(super) fn new(inner: Svc, shared: Arc<Shared<S, R>>) -> Self {
        Self { inner, shared }
    }

    /// The service behind the limits.
    pub fn get_ref(&self) -> &Svc {
        &self.inner
    }

    /// The service behind the limits. A request to it is not limited.
    pub fn get_mut(&mut self) -> &mut Svc {
        &mut self.inner
    }

    /// The service behind the limits, without them.
    pub fn into_inner(self) -> Svc {
        self.inner
    }
}

impl<Svc, S, R, ReqB, ResB> Service<Request<ReqB>> for RateLimit<Svc, S, R>
where
    Svc: Service<Request<ReqB>, Response = Response<ResB>> + Clone,
    S: Store + 'static,
    R: Respond<ResB> + Send + Sync + 'static,
{
    type Response = Svc::Response;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc, ReqB, S, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (request, body) = request.into_parts();
        if self.shared.settings.exempts(&request) {
            let future = self.inner.call(Request::from_parts(request, body));
            return ResponseFuture::serving(Arc::clone(&self.shared), future, None);
        }
        let shared = Arc::clone(&self.shared);
        match decide_now(&shared, &request) {
            // The service that is ready is called in its place, and need not be cloned, which is an allocation
            // for a service of axum.
            Ok(admission) => {
                ResponseFuture::decided(shared, &mut self.inner, request, body, admission)
            }
            Err(undecided) => {
                let decision = Box::pin(decide(Arc::clone(&shared), undecided));
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(shared, decision, ready, request, body)
            }
        }
    }
}

impl<Svc: Clone, S, R> Clone for RateLimit<Svc, S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<Svc: fmt::Debug, S: fmt::Debug, R> fmt::Debug for RateLimit<Svc, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("limits", &self.shared)
            .finish()
    }
}
