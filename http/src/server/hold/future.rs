//! The future of a service that holds.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tidegate_core::Store;
use tower_service::Service;

use super::super::future::ResponseFuture;
use super::super::refusal::{ProblemJson, Respond};
use super::body::HoldBody;

pin_project! {
    /// The future of a [`HoldService`](super::HoldService). It returns the response of the inner
    /// service, or the response of a refusal.
    pub struct HoldFuture<Svc, ReqB, S, R = ProblemJson>
    where
        Svc: Service<Request<ReqB>>,
    {
        #[pin]
        inner: ResponseFuture<Svc, ReqB, S, R>,
    }
}

impl<Svc, ReqB, S, R> HoldFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    pub(super) fn new(inner: ResponseFuture<Svc, ReqB, S, R>) -> Self {
        Self { inner }
    }
}

impl<Svc, ReqB, S, R, ResB> Future for HoldFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>, Response = Response<ResB>>,
    S: Store + 'static,
    R: Respond<ResB> + Send + Sync + 'static,
    ResB: Body,
{
    type Output = Result<Response<HoldBody<ResB>>, Svc::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.project().inner.poll_response(context, ResB::is_end_stream));
        Poll::Ready(result.map(|(response, hold)| response.map(|body| HoldBody::new(body, hold))))
    }
}

impl<Svc, ReqB, S, R> fmt::Debug for HoldFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.debug("HoldFuture", f)
    }
}
