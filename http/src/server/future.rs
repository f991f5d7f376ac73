//! The response.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response, response};
use pin_project_lite::pin_project;
use tidegate_core::Store;
use tower_service::Service;

use super::decide::{Admission, Decided, refund};
use super::refusal::{ProblemJson, Refusal, Respond};
use super::shared::Shared;
use crate::fields::Problem;

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit): decides, and then is served or refused.
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
            decision: Pin<Box<dyn Future<Output = Admission> + Send>>,
            // Boxed, as it alone would make every response future twice as large.
            waiting: Option<Box<Waiting<Svc, ReqB>>>,
        },
        /// The inner service is at work.
        Serving {
            #[pin]
            future: Svc::Future,
            decided: Option<Decided>,
        },
        /// The store takes back what a failed request was charged.
        Refunding {
            refund: Pin<Box<dyn Future<Output = ()> + Send>>,
            result: Option<Result<Svc::Response, Svc::Error>>,
        },
        /// The response is there.
        Answered {
            response: Option<Svc::Response>,
        },
    }
}

/// A request that waits for its decision, and the service that was made ready for it.
struct Waiting<Svc, ReqB> {
    service: Svc,
    request: Parts,
    body: ReqB,
}

impl<Svc, ReqB, S, R> ResponseFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    pub(super) fn deciding(
        shared: Arc<Shared<S, R>>,
        decision: Pin<Box<dyn Future<Output = Admission> + Send>>,
        service: Svc,
        request: Parts,
        body: ReqB,
    ) -> Self {
        let waiting = Some(Box::new(Waiting { service, request, body }));
        Self { shared, state: State::Deciding { decision, waiting } }
    }

    pub(super) fn serving(
        shared: Arc<Shared<S, R>>,
        future: Svc::Future,
        decided: Option<Decided>,
    ) -> Self {
        Self { shared, state: State::Serving { future, decided } }
    }

    pub(super) fn decided<ResB>(
        shared: Arc<Shared<S, R>>,
        service: &mut Svc,
        request: Parts,
        body: ReqB,
        admission: Admission,
    ) -> Self
    where
        Svc: Service<Request<ReqB>, Response = Response<ResB>>,
        R: Respond<ResB>,
    {
        let state = State::decided(&shared, service, request, body, admission);
        Self { shared, state }
    }
}

impl<Svc, ReqB> State<Svc, ReqB>
where
    Svc: Service<Request<ReqB>>,
{
    /// What follows a decision: the service, or the response of a refusal.
    fn decided<S, R, ResB>(
        shared: &Shared<S, R>,
        service: &mut Svc,
        request: Parts,
        body: ReqB,
        admission: Admission,
    ) -> Self
    where
        Svc: Service<Request<ReqB>, Response = Response<ResB>>,
        R: Respond<ResB>,
    {
        match shared.admit(&request, admission) {
            ControlFlow::Continue(decided) => {
                let future = service.call(Request::from_parts(request, body));
                Self::Serving { future, decided }
            }
            ControlFlow::Break(response) => Self::Answered { response: Some(response) },
        }
    }
}

impl<S, R> Shared<S, R> {
    /// What was decided on a request that is admitted; the response of one that is refused.
    pub(super) fn admit<B>(
        &self,
        request: &Parts,
        admission: Admission,
    ) -> ControlFlow<Response<B>, Option<Decided>>
    where
        R: Respond<B>,
    {
        match admission {
            Admission::Unlimited => ControlFlow::Continue(None),
            Admission::Decided(decided) => {
                let Some(problem) = Problem::new(decided.verdicts(), &decided.decision) else {
                    return ControlFlow::Continue(Some(decided));
                };
                let refusal = Refusal::denied(request, &decided, problem);
                let mut response = self.respond.respond(&refusal);
                self.write_fields(&decided, &mut response);
                ControlFlow::Break(response)
            }
            Admission::NoSubject { limit, refused } => {
                let policy = self.settings.limits.get(limit).map_or("", |(it, _)| it.name());
                let refusal = Refusal::no_subject(request, policy, refused);
                ControlFlow::Break(self.respond.respond(&refusal))
            }
            Admission::Failed(error) => {
                let refusal = Refusal::failed(request, &error);
                ControlFlow::Break(self.respond.respond(&refusal))
            }
        }
    }

    pub(super) fn write_fields<B>(&self, decided: &Decided, response: &mut Response<B>) {
        if let Some(writer) = &self.settings.fields {
            let headers = response.headers_mut();
            writer.write_partitioned(decided.partitioned(), &decided.decision, headers);
        }
    }

    /// Whether the charges of a request with this response are given back.
    pub(super) fn refunds(&self, response: &response::Parts) -> bool {
        self.settings.refund.as_ref().is_some_and(|rule| rule(response))
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
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Deciding { decision, waiting } => {
                    let admission = ready!(decision.as_mut().poll(context));
                    let Some(waiting) = waiting.take() else {
                        return Poll::Pending;
                    };
                    let Waiting { mut service, request, body } = *waiting;
                    State::decided(this.shared, &mut service, request, body, admission)
                }
                StateProjection::Serving { future, decided } => {
                    let mut result = ready!(future.poll(context));
                    let Some(decided) = decided else {
                        return Poll::Ready(result);
                    };
                    let mut refund_call = decided.refund.take();
                    if refund_call.is_some() {
                        let is_refunded;
                        (is_refunded, result) = match result {
                            Ok(response) => {
                                let (head, body) = response.into_parts();
                                let is_refunded = this.shared.refunds(&head);
                                (is_refunded, Ok(Response::from_parts(head, body)))
                            }
                            // There is a refund only if there is a rule.
                            Err(error) => (true, Err(error)),
                        };
                        refund_call = refund_call.filter(|_| is_refunded);
                    }
                    if let Ok(response) = &mut result {
                        this.shared.write_fields(decided, response);
                    }
                    let Some(call) = refund_call else {
                        return Poll::Ready(result);
                    };
                    let refund = refund(Arc::clone(this.shared), *call);
                    State::Refunding { refund: Box::pin(refund), result: Some(result) }
                }
                StateProjection::Refunding { refund, result } => {
                    ready!(refund.as_mut().poll(context));
                    // As for every future, polling on after the response was given never gives another.
                    return result.take().map_or(Poll::Pending, Poll::Ready);
                }
                StateProjection::Answered { response } => {
                    return response.take().map_or(Poll::Pending, |it| Poll::Ready(Ok(it)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<Svc, ReqB, S, R> fmt::Debug for ResponseFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Deciding { .. } => "ResponseFuture(deciding)",
            State::Serving { .. } => "ResponseFuture(serving)",
            State::Refunding { .. } => "ResponseFuture(refunding)",
            State::Answered { .. } => "ResponseFuture(answered)",
        })
    }
}
