//! The service that holds.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tidegate_core::Store;
use tower_service::Service;

use super::super::future::{PendingDecision, ResponseFuture};
use super::super::refusal::{ProblemJson, Respond};
use super::super::shared::Shared;
use super::body::HoldBody;
use super::future::HoldFuture;
use super::open_hold::hold;
use super::settings::HoldSettings;

/// A service that holds an estimate for each request, and settles the hold by the response.
/// [`HoldLayer`](super::HoldLayer) creates it.
///
/// `poll_ready` makes the inner service ready, and `call` calls this ready service, not a clone. A
/// request that is refused does not reach the inner service.
pub struct HoldService<Svc, S, R = ProblemJson> {
    inner: Svc,
    shared: Arc<Shared<S, R>>,
    settings: Arc<HoldSettings>,
}

impl<Svc, S, R> HoldService<Svc, S, R> {
    pub(super) fn new(inner: Svc, shared: Arc<Shared<S, R>>, settings: Arc<HoldSettings>) -> Self {
        Self { inner, shared, settings }
    }
}

impl<Svc, S, R, ReqB, ResB> Service<Request<ReqB>> for HoldService<Svc, S, R>
where
    Svc: Service<Request<ReqB>, Response = Response<ResB>> + Clone,
    S: Store + 'static,
    R: Respond<ResB> + Send + Sync + 'static,
    ResB: Body,
{
    type Response = Response<HoldBody<ResB>>;
    type Error = Svc::Error;
    type Future = HoldFuture<Svc, ReqB, S, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        let (request, body) = request.into_parts();
        let shared = Arc::clone(&self.shared);
        if shared.settings.exempts(&request) {
            let future = self.inner.call(Request::from_parts(request, body));
            return HoldFuture::new(ResponseFuture::exempt(shared, future));
        }
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let decision = hold(Arc::clone(&shared), Arc::clone(&self.settings), request);
        let decision = PendingDecision::hold(decision);
        HoldFuture::new(ResponseFuture::deciding(shared, decision, ready, body))
    }
}

impl<Svc: Clone, S, R> Clone for HoldService<Svc, S, R> {
    fn clone(&self) -> Self {
        let (shared, settings) = (Arc::clone(&self.shared), Arc::clone(&self.settings));
        Self { inner: self.inner.clone(), shared, settings }
    }
}

impl<Svc: fmt::Debug, S: fmt::Debug, R> fmt::Debug for HoldService<Svc, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldService")
            .field("inner", &self.inner)
            .field("limits", &self.shared)
            .field("settings", &self.settings)
            .finish()
    }
}
