//! The future that decides on a request and returns its response, with or without a hold.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, response};
use pin_project_lite::pin_project;
use tidegate_core::Store;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower_service::Service;

use super::decide::{Admission, Decided, refund};
use super::hold::{OpenHold, StoreCall};
use super::refusal::{ProblemJson, Respond};
use super::shared::Shared;

/// The maximum time that a task takes to refund a hold after its caller was cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

pin_project! {
    /// The future of a [`RateLimit`](super::RateLimit) service. It returns the response of the
    /// inner service, or the response of a refusal.
    pub struct ResponseFuture<Svc, ReqB, S, R = ProblemJson>
    where
        Svc: Service<Request<ReqB>>,
    {
        shared: Arc<Shared<S, R>>,
        #[pin]
        state: State<Svc, ReqB>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<Svc, ReqB>
    where
        Svc: Service<Request<ReqB>>,
    {
        /// The store is deciding.
        Deciding {
            decision: PendingDecision,
            // Without the box, each response future would be twice as large.
            waiting: Option<Box<Waiting<Svc, ReqB>>>,
        },
        /// The inner service is executing the request.
        Serving {
            #[pin]
            future: Svc::Future,
            decided: Option<Decided>,
            hold: Option<Box<dyn OpenHold>>,
        },
        /// The result of the service, or a refusal, is known. If there is a refund or a settlement,
        /// the store executes it before the future returns the result.
        Ending {
            call: Option<StoreCall>,
            result: Option<Result<Svc::Response, Svc::Error>>,
        },
    }
}

/// The service that was made ready for a request, and the body of the request. Both wait for the
/// decision.
struct Waiting<Svc, ReqB> {
    service: Svc,
    body: ReqB,
}

/// A request with the decision on it.
pub(super) struct DecidedRequest {
    pub(super) request: Parts,
    pub(super) admission: Admission,
    pub(super) hold: Option<Box<dyn OpenHold>>,
}

/// A response, and the hold that is settled at the end of the body.
type HeldResponse<B> = (Response<B>, Option<Box<dyn OpenHold>>);

/// The call to the store that decides on a request, while the call is in flight.
pub(super) struct PendingDecision {
    call: Option<Pin<Box<dyn Future<Output = DecidedRequest> + Send>>>,
    is_hold: bool,
    /// The Tokio runtime in which the call of a hold was polled. After a cancellation, a task in
    /// this runtime refunds the hold.
    runtime: Option<Handle>,
}

impl PendingDecision {
    pub(super) fn new(call: impl Future<Output = DecidedRequest> + Send + 'static) -> Self {
        Self { call: Some(Box::pin(call)), is_hold: false, runtime: None }
    }

    /// Like [`new`](Self::new), but for a call that holds estimates. If the decision is dropped
    /// while the call is in flight, a task waits for the answer and refunds the hold.
    pub(super) fn hold(call: impl Future<Output = DecidedRequest> + Send + 'static) -> Self {
        Self { call: Some(Box::pin(call)), is_hold: true, runtime: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<DecidedRequest> {
        let Some(call) = &mut self.call else { return Poll::Pending };
        let answer = call.as_mut().poll(context);
        if answer.is_ready() {
            self.call = None;
        } else if self.is_hold && self.runtime.is_none() {
            self.runtime = Handle::try_current().ok();
        }
        answer
    }
}

impl Drop for PendingDecision {
    fn drop(&mut self) {
        if let (Some(call), Some(runtime)) = (self.call.take(), &self.runtime) {
            let cancel = async {
                if let Some(hold) = call.await.hold {
                    hold.cancel().await;
                }
            };
            // `timeout` is called in the task, because it panics outside of a runtime.
            runtime.spawn(async { timeout(CANCEL_TIMEOUT, cancel).await });
        }
    }
}

impl<Svc, ReqB, S, R> ResponseFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    /// Creates the future of an exempt request.
    pub(super) fn exempt(shared: Arc<Shared<S, R>>, future: Svc::Future) -> Self {
        Self { shared, state: State::Serving { future, decided: None, hold: None } }
    }

    pub(super) fn deciding(
        shared: Arc<Shared<S, R>>,
        decision: PendingDecision,
        service: Svc,
        body: ReqB,
    ) -> Self {
        let waiting = Some(Box::new(Waiting { service, body }));
        Self { shared, state: State::Deciding { decision, waiting } }
    }

    pub(super) fn decided<ResB>(
        shared: Arc<Shared<S, R>>,
        request: Parts,
        admission: Admission,
        service: &mut Svc,
        body: ReqB,
    ) -> Self
    where
        Svc: Service<Request<ReqB>, Response = Response<ResB>>,
        R: Respond<ResB>,
    {
        let state = State::decided(&shared, request, admission, None, service, body);
        Self { shared, state }
    }

    /// Polls for the response. If the end of the body must settle a hold, also returns the hold.
    ///
    /// `is_over` returns `true` if a body has no frames left.
    pub(super) fn poll_response<ResB>(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        is_over: fn(&ResB) -> bool,
    ) -> Poll<Result<HeldResponse<ResB>, Svc::Error>>
    where
        Svc: Service<Request<ReqB>, Response = Response<ResB>>,
        S: Store + 'static,
        R: Respond<ResB> + Send + Sync + 'static,
    {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Deciding { decision, waiting } => {
                    let decided = ready!(decision.poll(context));
                    let Some(waiting) = waiting.take() else { return Poll::Pending };
                    let Waiting { mut service, body } = *waiting;
                    let DecidedRequest { request, admission, hold } = decided;
                    State::decided(this.shared, request, admission, hold, &mut service, body)
                }
                StateProjection::Serving { future, decided, hold } => {
                    let mut result = ready!(future.poll(context));
                    let mut refund_call =
                        decided.as_mut().and_then(|decided| decided.refund.take());
                    if hold.is_some() || refund_call.is_some() {
                        let is_refunded;
                        (result, is_refunded) = with_head(result, |head| {
                            let is_refunded = this.shared.refunds(head);
                            if let Some(hold) = hold {
                                hold.respond(head, is_refunded);
                            }
                            is_refunded
                        });
                        refund_call = refund_call.filter(|_| is_refunded);
                    }
                    if let (Ok(response), Some(decided)) = (&mut result, decided) {
                        this.shared.write_fields(decided, response);
                    }
                    let call: StoreCall = match (hold.take(), refund_call) {
                        (None, None) => {
                            return Poll::Ready(result.map(|response| (response, None)));
                        }
                        (None, Some(call)) => Box::pin(refund(Arc::clone(this.shared), *call)),
                        (Some(mut hold), _) => {
                            match result {
                                Ok(response) if !hold.is_known() && !is_over(response.body()) => {
                                    return Poll::Ready(Ok((response, Some(hold))));
                                }
                                Ok(_) => hold.end(),
                                Err(_) => {}
                            }
                            hold.settle()
                        }
                    };
                    State::Ending { call: Some(call), result: Some(result) }
                }
                StateProjection::Ending { call, result } => {
                    if let Some(call) = call {
                        ready!(call.as_mut().poll(context));
                    }
                    // If the future is polled again after it has returned its result, it stays
                    // pending.
                    let Some(result) = result.take() else { return Poll::Pending };
                    return Poll::Ready(result.map(|response| (response, None)));
                }
            };
            this.state.set(next);
        }
    }

    /// Writes the state of the future for a `Debug` output.
    pub(super) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Deciding { .. } => "deciding",
            State::Serving { .. } => "serving",
            State::Ending { .. } => "ending",
        };
        write!(f, "{name}({state})")
    }
}

impl<Svc, ReqB> State<Svc, ReqB>
where
    Svc: Service<Request<ReqB>>,
{
    /// Calls the service, or creates the response of a refusal.
    // The request, its admission and its hold are separate arguments, because moving a struct of
    // them takes longer.
    #[inline]
    fn decided<S, R, ResB>(
        shared: &Shared<S, R>,
        request: Parts,
        admission: Admission,
        hold: Option<Box<dyn OpenHold>>,
        service: &mut Svc,
        body: ReqB,
    ) -> Self
    where
        Svc: Service<Request<ReqB>, Response = Response<ResB>>,
        R: Respond<ResB>,
    {
        match shared.admit(&request, admission) {
            ControlFlow::Continue(decided) => {
                let future = service.call(Request::from_parts(request, body));
                Self::Serving { future, decided, hold }
            }
            ControlFlow::Break(response) => Self::Ending { call: None, result: Some(Ok(response)) },
        }
    }
}

/// Calls `look` with the head of the response, or with `None` if the service failed.
fn with_head<B, E, T>(
    result: Result<Response<B>, E>,
    look: impl FnOnce(Option<&response::Parts>) -> T,
) -> (Result<Response<B>, E>, T) {
    match result {
        Ok(response) => {
            let (head, body) = response.into_parts();
            let seen = look(Some(&head));
            (Ok(Response::from_parts(head, body)), seen)
        }
        Err(error) => (Err(error), look(None)),
    }
}

impl<Svc, ReqB, S, R, ResB> Future for ResponseFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>, Response = Response<ResB>>,
    S: Store + 'static,
    R: Respond<ResB> + Send + Sync + 'static,
{
    type Output = Result<Response<ResB>, Svc::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A request of this future has no hold, so the end of the body does not matter.
        let result = ready!(self.poll_response(context, |_| true));
        Poll::Ready(result.map(|(response, _)| response))
    }
}

impl<Svc, ReqB, S, R> fmt::Debug for ResponseFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("ResponseFuture", f)
    }
}
