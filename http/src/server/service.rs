//! The service of the layer.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tidegate_core::Store;
use tower_service::Service;

use super::decide::{decide, decide_now};
use super::future::{PendingDecision, ResponseFuture};
use super::refusal::{ProblemJson, Respond};
use super::shared::Shared;

/// A service that applies limits to its requests. [`RateLimitLayer`](super::RateLimitLayer) creates
/// it.
///
/// `poll_ready` makes the inner service ready, and `call` calls this ready service, not a clone. A
/// request that is refused does not reach the inner service.
pub struct RateLimit<Svc, S, R = ProblemJson> {
    inner: Svc,
    shared: Arc<Shared<S, R>>,
}

impl<Svc, S, R> RateLimit<Svc, S, R> {
    pub(super) fn new(inner: Svc, shared: Arc<Shared<S, R>>) -> Self {
        Self { inner, shared }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &Svc {
        &self.inner
    }

    /// Returns the inner service. A direct call to the inner service is not limited.
    pub fn get_mut(&mut self) -> &mut Svc {
        &mut self.inner
    }

    /// Returns the inner service, and drops the limits.
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
            return ResponseFuture::exempt(Arc::clone(&self.shared), future);
        }
        let shared = Arc::clone(&self.shared);
        match decide_now(&shared, &request) {
            // The inner service is called without a clone, because cloning a service of axum
            // costs an allocation.
            Ok(admission) => {
                ResponseFuture::decided(shared, request, admission, &mut self.inner, body)
            }
            Err(undecided) => {
                let decision =
                    PendingDecision::new(decide(Arc::clone(&shared), request, undecided));
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(shared, decision, ready, body)
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
