//! The response of a service that holds.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tidegate_core::Store;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower_service::Service;

use super::super::decide::{Admission, Decided};
use super::super::refusal::{ProblemJson, Respond};
use super::super::shared::Shared;
use super::body::HoldBody;
use super::open_hold::{OpenHold, Settling, hold};
use super::settings::HoldSettings;

/// The time after which a task that gives a hold back gives up.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(10);

pin_project! {
    /// The response of a [`HoldService`](super::HoldService): decides, and then is served or refused.
    pub struct HoldFuture<Svc, ReqB, S, R = ProblemJson>
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
            decision: HoldDecision,
            waiting: Option<Box<Waiting<Svc, ReqB>>>,
        },
        /// The inner service is at work.
        Serving {
            #[pin]
            future: Svc::Future,
            decided: Option<Decided>,
            hold: Option<Box<dyn OpenHold>>,
        },
        /// The store settles a hold whose costs the head of the response has told, or the want of one.
        Settling {
            settling: Settling,
            result: Option<Result<Svc::Response, Svc::Error>>,
        },
        /// The response of a refusal.
        Refused {
            response: Option<Svc::Response>,
        },
    }
}

/// A request that waits for its decision, and the service that was made ready for it.
struct Waiting<Svc, ReqB> {
    service: Svc,
    body: ReqB,
}

/// The call that decides. Dropped once it is sent, it goes on in a task, and what it holds is given back.
struct HoldDecision {
    call: Option<Pin<Box<dyn Future<Output = DecidedRequest> + Send>>>,
    /// That in which it was sent.
    runtime: Option<Handle>,
}

struct DecidedRequest {
    request: Parts,
    admission: Admission,
    hold: Option<Box<dyn OpenHold>>,
}

impl HoldDecision {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<DecidedRequest> {
        let Some(call) = &mut self.call else { return Poll::Pending };
        let answer = call.as_mut().poll(context);
        match &answer {
            Poll::Ready(_) => self.call = None,
            Poll::Pending if self.runtime.is_none() => self.runtime = Handle::try_current().ok(),
            Poll::Pending => {}
        }
        answer
    }
}

impl Drop for HoldDecision {
    fn drop(&mut self) {
        if let (Some(call), Some(runtime)) = (self.call.take(), &self.runtime) {
            let give_back = async {
                if let Some(hold) = call.await.hold {
                    hold.give_back().await;
                }
            };
            runtime.spawn(timeout(GIVE_BACK_TIMEOUT, give_back));
        }
    }
}

impl<Svc, ReqB, S, R> HoldFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    pub(super) fn serving(shared: Arc<Shared<S, R>>, future: Svc::Future) -> Self {
        Self { shared, state: State::Serving { future, decided: None, hold: None } }
    }

    pub(super) fn deciding(
        shared: Arc<Shared<S, R>>,
        settings: Arc<HoldSettings>,
        service: Svc,
        mut request: Parts,
        body: ReqB,
    ) -> Self
    where
        S: Store + 'static,
        R: Send + Sync + 'static,
    {
        let of_call = Arc::clone(&shared);
        let call = async move {
            let (admission, hold) = hold(&of_call, &settings, &mut request).await;
            DecidedRequest { request, admission, hold }
        };
        let decision = HoldDecision { call: Some(Box::pin(call)), runtime: None };
        let waiting = Some(Box::new(Waiting { service, body }));
        Self { shared, state: State::Deciding { decision, waiting } }
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
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Deciding { decision, waiting } => {
                    let DecidedRequest { request, admission, hold } =
                        ready!(decision.poll(context));
                    let Some(waiting) = waiting.take() else {
                        return Poll::Pending;
                    };
                    let Waiting { mut service, body } = *waiting;
                    match this.shared.admit(&request, admission) {
                        ControlFlow::Break(response) => State::Refused { response: Some(response) },
                        ControlFlow::Continue(decided) => {
                            let future = service.call(Request::from_parts(request, body));
                            State::Serving { future, decided, hold }
                        }
                    }
                }
                StateProjection::Serving { future, decided, hold } => {
                    let mut result = ready!(future.poll(context));
                    if let (Ok(response), Some(decided)) = (&mut result, decided) {
                        this.shared.write_fields(decided, response);
                    }
                    let Some(mut hold) = hold.take() else {
                        return Poll::Ready(result.map(|response| with_hold(response, None)));
                    };
                    let (settling, result) = match result {
                        Ok(response) => {
                            let (head, body) = response.into_parts();
                            let is_refunded = this.shared.refunds(&head);
                            hold.respond(Some(&head), is_refunded);
                            let response = Response::from_parts(head, body);
                            let is_over = response.body().is_end_stream();
                            if !is_over && !hold.is_known() {
                                return Poll::Ready(Ok(with_hold(response, Some(hold))));
                            }
                            hold.end();
                            (hold.settle(), Ok(response))
                        }
                        Err(error) => {
                            hold.respond(None, this.shared.settings.refund.is_some());
                            (hold.settle(), Err(error))
                        }
                    };
                    State::Settling { settling, result: Some(result) }
                }
                StateProjection::Settling { settling, result } => {
                    ready!(settling.as_mut().poll(context));
                    // As for every future, polling on after the response was given never gives another.
                    let Some(result) = result.take() else { return Poll::Pending };
                    return Poll::Ready(result.map(|response| with_hold(response, None)));
                }
                StateProjection::Refused { response } => {
                    let Some(response) = response.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(with_hold(response, None)));
                }
            };
            this.state.set(next);
        }
    }
}

fn with_hold<B>(response: Response<B>, hold: Option<Box<dyn OpenHold>>) -> Response<HoldBody<B>> {
    response.map(|body| HoldBody::new(body, hold))
}

impl<Svc, ReqB, S, R> fmt::Debug for HoldFuture<Svc, ReqB, S, R>
where
    Svc: Service<Request<ReqB>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Deciding { .. } => "HoldFuture(deciding)",
            State::Serving { .. } => "HoldFuture(serving)",
            State::Settling { .. } => "HoldFuture(settling)",
            State::Refused { .. } => "HoldFuture(refused)",
        })
    }
}
