//! Tests of the layer that holds estimates, in virtual time. Each request contains a plan, and the
//! inner service executes the steps of the plan.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cut;
mod delayed;
mod ledger;
mod settings;
mod settled;
mod upgraded;
mod while_it_streams;

use std::collections::{HashSet, VecDeque};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tidegate_http::server::hold::HoldBody;
use tidegate_http::server::{ActualCost, HoldLayer, Limit, RateLimitLayer, Respond, Usage};
use tidegate_http::subject::Everybody;
use tidegate_memory::core::layers::{Layer as StoreLayer, Layered};
use tidegate_memory::{
    Answer, Call, Decision, Error, Limiter, ManualClock, MemoryStore, Operation, Policy, Store,
    StoreExt,
};
use tidegate_testkit::decide_one_by_one;
use tokio::time::{Sleep, sleep};
use tower::{Layer, Service};

const TTL: Duration = Duration::from_secs(100);

/// A step of a handler.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// Reports tokens.
    Tokens(u64),
    /// Waits for this many milliseconds.
    Wait(u64),
    /// Sends this many bytes of the body.
    Bytes(usize),
    Trailers,
    Fail,
    Panic,
    /// Waits forever.
    Hang,
}

/// The steps of a handler before and after the head of the response.
#[derive(Debug, Clone, Default)]
struct Plan {
    before: Vec<Step>,
    status: u16,
    after: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Failed;

/// A body that executes the steps of a plan.
struct PlannedBody {
    steps: VecDeque<Step>,
    usage: Usage,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Whether `is_end_stream` returns `true` after the last frame, as for a body in memory.
    knows_its_end: bool,
}

impl From<String> for PlannedBody {
    fn from(text: String) -> Self {
        let steps = VecDeque::from([Step::Bytes(text.len())]);
        Self { steps, usage: Usage::default(), waiting: None, knows_its_end: true }
    }
}

impl Default for PlannedBody {
    fn default() -> Self {
        String::new().into()
    }
}

impl Body for PlannedBody {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                if waiting.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.waiting = None;
            }
            let Some(step) = self.steps.pop_front() else { return Poll::Ready(None) };
            return Poll::Ready(Some(match step {
                Step::Tokens(tokens) => {
                    self.usage.add("tokens", tokens);
                    continue;
                }
                Step::Wait(millis) => {
                    self.waiting = Some(Box::pin(sleep(Duration::from_millis(millis))));
                    continue;
                }
                Step::Bytes(bytes) => Ok(Frame::data(Bytes::from(vec![b'x'; bytes]))),
                Step::Trailers => Ok(Frame::trailers(http::HeaderMap::new())),
                Step::Fail => Err(Failed),
                Step::Panic => panic!("planned"),
                Step::Hang => {
                    self.steps.push_front(Step::Hang);
                    return Poll::Pending;
                }
            }));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.knows_its_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(4711)
    }
}

/// Executes the plan that the request contains as its body. The response announces the length in
/// the field `announced` of the request.
async fn handle(request: Request<Plan>) -> Result<Response<PlannedBody>, Failed> {
    let usage = Usage::from_extensions(request.extensions());
    let announced = request.headers().get("announced").cloned();
    let Plan { before, status, after } = request.into_body();
    for step in before {
        match step {
            Step::Tokens(tokens) => usage.add("tokens", tokens),
            Step::Wait(millis) => sleep(Duration::from_millis(millis)).await,
            Step::Fail => return Err(Failed),
            Step::Hang => pending().await,
            Step::Panic => panic!("planned"),
            Step::Bytes(_) | Step::Trailers => panic!("there is no body yet"),
        }
    }
    let knows_its_end = after.len().is_multiple_of(2);
    let body = PlannedBody { steps: after.into(), usage, waiting: None, knows_its_end };
    let mut response = Response::builder().status(status).body(body).unwrap();
    response.headers_mut().extend(announced.map(|length| (http::header::CONTENT_LENGTH, length)));
    Ok(response)
}

fn plan(before: &[Step], status: u16, after: &[Step]) -> Request<Plan> {
    Request::new(Plan { before: before.to_vec(), status, after: after.to_vec() })
}

type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;
type Sent = Result<Response<HoldBody<PlannedBody>>, Failed>;

fn send<S, R>(layer: &HoldLayer<S, R>, request: Request<Plan>) -> Sending
where
    S: Store + 'static,
    R: Respond<PlannedBody> + Send + Sync + 'static,
{
    let mut service = layer.layer(tower::service_fn(handle));
    Box::pin(async move {
        poll_fn(|context| Service::<Request<Plan>>::poll_ready(&mut service, context)).await?;
        service.call(request).await
    })
}

/// Reads a body to its end. Returns the number of bytes, and the error if the body fails.
async fn read(mut body: HoldBody<PlannedBody>) -> (usize, Option<Failed>) {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes += frame.data_ref().map_or(0, Bytes::len),
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

/// A memory store with a [`Watch`] around it.
type Watched = Layered<Watch, MemoryStore<ManualClock>>;

/// A store layer that delays calls, and records the calls and the open holds.
#[derive(Debug)]
struct Watch {
    clock: ManualClock,
    delay: Duration,
    open: Mutex<HashSet<Vec<u8>>>,
    calls: Mutex<Vec<Operation>>,
}

fn watched(delay: Duration) -> Arc<Watched> {
    let clock = ManualClock::default();
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let watch = Watch { clock, delay, open: Mutex::default(), calls: Mutex::default() };
    Arc::new(inner.layer(watch))
}

impl Watch {
    fn decide_now(
        &self,
        inner: &MemoryStore<ManualClock>,
        call: Call<'_>,
    ) -> Result<Decision, Error> {
        self.calls.lock().unwrap().push(call.operation);
        let answer = inner.decide_now(&call);
        let id = call.id.map(|id| id.id.to_vec());
        match (call.operation, &answer, id) {
            (Operation::Hold, Ok(decision), Some(id)) if decision.is_allowed() => {
                self.open.lock().unwrap().insert(id);
            }
            (Operation::Settle, Ok(_), Some(id)) => {
                self.open.lock().unwrap().remove(&id);
            }
            _ => {}
        }
        answer
    }

    fn count(&self, operation: Operation) -> usize {
        self.calls.lock().unwrap().iter().filter(|&&known| known == operation).count()
    }

    fn open(&self) -> usize {
        self.open.lock().unwrap().len()
    }
}

impl StoreLayer<MemoryStore<ManualClock>> for Watch {
    const MAY_WAIT: bool = true;

    fn decide<'a>(
        &'a self,
        inner: &'a MemoryStore<ManualClock>,
        call: Call<'a>,
    ) -> Answer<'a, Result<Decision, Error>> {
        if self.delay.is_zero() || call.operation == Operation::Peek {
            return Answer::ready(self.decide_now(inner, call));
        }
        Answer::later(async move {
            sleep(self.delay).await;
            let answer = self.decide_now(inner, call);
            sleep(self.delay).await;
            answer
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a MemoryStore<ManualClock>,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }

    fn answers_immediately(&self, _: &MemoryStore<ManualClock>) -> bool {
        self.delay.is_zero()
    }
}

fn limiter<S: Store>(store: S, tokens: u64) -> Limiter<S> {
    let policies = [
        "requests: fixed-window 1000/1h".to_owned(),
        format!("tokens: fixed-window {tokens}/1h"),
        "bytes: fixed-window 1000000/1h".to_owned(),
    ];
    let policies: Vec<Policy> = policies.iter().map(|text| text.parse().unwrap()).collect();
    Limiter::new(store, policies).unwrap()
}

/// Returns a layer that charges one request, 100 tokens and 1,000 bytes. The numbers of tokens and
/// bytes are estimates.
fn layer<S: Store>(limiter: &Limiter<S>) -> HoldLayer<S> {
    let limits = [
        Limit::by("requests", Everybody),
        Limit::by("tokens", Everybody).cost(100),
        Limit::by("bytes", Everybody).cost(1_000),
    ];
    let costs = [("tokens", ActualCost::usage("tokens")), ("bytes", ActualCost::body_bytes())];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    layer.refund_server_errors().hold_for(TTL, costs).unwrap()
}

/// Returns the number of requests, tokens and bytes that are charged.
async fn taken<S: Store>(limiter: &Limiter<S>) -> [u64; 3] {
    let peek = limiter.subject("").cost(0).peek().await.unwrap();
    let verdicts = peek.verdicts();
    [0, 1, 2].map(|index| verdicts[index].limit() - verdicts[index].remaining())
}
