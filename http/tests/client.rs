//! Tests the client layer, in virtual time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Version};
use http_body_util::BodyExt;
use tidegate_core::layers::Layer as StoreLayer;
use tidegate_core::{
    Answer, Call, Decision, Error, ErrorKind, Limiter, Operation, Store, StoreExt, Subject,
    TokioClock,
};
use tidegate_http::client::{ClientErrorKind, Throttle, ThrottleLayer, copy_if_safe};
use tidegate_memory::MemoryStore;
use tidegate_testkit::decide_one_by_one;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt};

type Body = String;

/// A server that records its requests and returns given answers.
#[derive(Debug, Clone)]
struct Server(Arc<Mutex<Log>>);

#[derive(Debug)]
struct Log {
    started: Instant,
    /// The time of each request in milliseconds since the start of the server, and its path.
    requests: Vec<(u64, String)>,
    /// The remaining answers, with the next answer first. If there are none, the server answers
    /// with status 200.
    answers: Vec<Response<Body>>,
}

impl Server {
    fn new<const N: usize>(answers: [Response<Body>; N]) -> Self {
        let log = Log { started: Instant::now(), requests: vec![], answers: answers.into() };
        Self(Arc::new(Mutex::new(log)))
    }

    /// Returns the times of all requests, in milliseconds.
    fn times(&self) -> Vec<u64> {
        self.0.lock().unwrap().requests.iter().map(|(time, _)| *time).collect()
    }

    fn client(&self) -> Client {
        Client { server: self.clone(), is_ready: false, delay: None }
    }
}

/// A client of the server. It must be made ready before each call.
#[derive(Debug)]
struct Client {
    server: Server,
    is_ready: bool,
    /// The time that the client takes to become ready.
    delay: Option<Duration>,
}

impl Clone for Client {
    fn clone(&self) -> Self {
        Self { server: self.server.clone(), is_ready: false, delay: self.delay }
    }
}

impl Service<Request<Body>> for Client {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if let Some(delay) = self.delay.take() {
            let waker = context.waker().clone();
            tokio::spawn(async move {
                sleep(delay).await;
                waker.wake();
            });
            return Poll::Pending;
        }
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been made ready");
        let mut log = self.server.0.lock().unwrap();
        let time = log.started.elapsed().as_millis().try_into().unwrap();
        log.requests.push((time, request.uri().path().to_owned()));
        let answer =
            if log.answers.is_empty() { Response::new(Body::new()) } else { log.answers.remove(0) };
        ready(Ok(answer))
    }
}

fn store() -> MemoryStore<TokioClock> {
    MemoryStore::builder().clock(TokioClock::new()).build()
}

fn limiter<S: Store>(store: S, policy: &str) -> Limiter<S> {
    Limiter::new(store, [policy.parse().unwrap()]).unwrap()
}

/// The text of a policy under which no request of these tests must wait.
const FREE: &str = "free: gcra 1000000/1s burst 1000000";

fn answer(status: u16, fields: &[(&str, &str)]) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(Body::new()).unwrap()
}

fn get(uri: &str) -> Request<Body> {
    Request::get(uri).body(Body::new()).unwrap()
}

const URI: &str = "https://api.example.com/items";

type Client1<S, R> = Throttle<Client, S, R>;

async fn status<S, R>(client: &Client1<S, R>) -> u16
where
    S: Store + 'static,
    Client1<S, R>: Service<Request<Body>, Response = Response<Body>>,
    <Client1<S, R> as Service<Request<Body>>>::Error: std::fmt::Debug,
{
    client.clone().oneshot(get(URI)).await.unwrap().status().as_u16()
}

/// Checks that `time` is at least `at`, and later by at most the maximum jitter of a wait of
/// `waited`. All times are in milliseconds.
fn assert_at(time: u64, at: u64, waited: u64) {
    let latest = at + (waited / 8).min(1_000) + 25;
    assert!((at..=latest).contains(&time), "{time} is not between {at} and {latest}");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_their_turn_by_origin() {
    let server = Server::new([]);
    let layer = ThrottleLayer::new(limiter(store(), "gcra 1/1s burst 1"));
    let client = layer.layer(server.client());
    for _ in 0..3 {
        status(&client).await;
    }
    client.clone().oneshot(get("https://other.example.com/")).await.unwrap();
    // A wait can end up to one millisecond late, at the next tick of Tokio's timers. So the test
    // compares times in units of 10 ms.
    let seconds: Vec<_> = server.times().iter().map(|time| time / 10).collect();
    assert_eq!(seconds, [0, 100, 200, 200]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_not_wait_is_refused_and_takes_nothing() {
    let server = Server::new([]);
    let limiter = limiter(store(), "gcra 1/1s burst 1");
    let layer = ThrottleLayer::new(limiter.clone()).max_wait(Duration::ZERO);
    let client = layer.layer(server.client());
    status(&client).await;
    let error = client.clone().oneshot(get(URI)).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::WaitTooLong);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(error.to_string(), "the request would have to wait 1s; the maximum wait is 0s");
    assert_eq!(server.times(), [0]);
    sleep(Duration::from_secs(1)).await;
    status(&client).await;
    assert_eq!(server.times().len(), 2);

    // This cost is never admitted.
    let client = ThrottleLayer::new(limiter).cost(|_| 2).layer(server.client());
    let error = client.oneshot(get(URI)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ClientErrorKind::WaitTooLong, None));
}

#[tokio::test(start_paused = true)]
async fn retry_after_holds_back_all_processes_that_share_the_store() {
    let store = Arc::new(store());
    let server = Server::new([answer(429, &[("retry-after", "5")])]);
    // Each process has its own layer. The processes share only the store.
    let process = || ThrottleLayer::new(limiter(Arc::clone(&store), FREE)).layer(server.client());
    let processes: Vec<_> = (0..8).map(|_| process()).collect();
    assert_eq!(status(&processes[0]).await, 429);
    let mut tasks = tokio::task::JoinSet::new();
    for process in processes {
        tasks.spawn(async move { status(&process).await });
    }
    assert_eq!(tasks.join_all().await, [200; 8]);
    for time in &server.times()[1..] {
        assert_at(*time, 5_000, 5_000);
    }
    // Another origin is not affected.
    process().oneshot(get("https://other.example.com/")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_announced_and_what_is_not() {
    let exhausted = r#""burst";r=0;t=30, "daily";r=5;t=3600"#;
    let cases = [
        (answer(200, &[]), 0),
        (answer(200, &[("ratelimit", exhausted)]), 30_000),
        (answer(429, &[("ratelimit", exhausted)]), 30_000),
        (answer(429, &[("ratelimit", exhausted), ("retry-after", "7")]), 7_000),
        (answer(200, &[("ratelimit", exhausted), ("retry-after", "7")]), 30_000),
        (answer(200, &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "9")]), 0),
        (answer(200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9")]), 9_000),
        (answer(503, &[("retry-after", "7")]), 7_000),
        (answer(403, &[("retry-after", "7")]), 7_000),
        (answer(503, &[]), 0),
        (answer(202, &[("retry-after", "7")]), 0),
        (answer(301, &[("retry-after", "7")]), 0),
        (answer(429, &[("retry-after", "0")]), 0),
        (answer(429, &[("retry-after", "soon")]), 1_000),
        (answer(429, &[]), 1_000),
        (answer(429, &[("retry-after", "7"), ("age", "9")]), 1_000),
        (answer(429, &[("beta-retry-after", "7")]), 1_000),
    ];
    for (first, wait) in cases {
        let shown = format!("{first:?}");
        let server = Server::new([first]);
        let client = ThrottleLayer::new(limiter(store(), FREE))
            .max_wait(Duration::from_secs(60))
            .layer(server.client());
        status(&client).await;
        assert_eq!(status(&client).await, 200);
        let [_, second] = server.times()[..] else { panic!("{shown}") };
        assert!((wait..=wait + wait / 8 + 25).contains(&second), "{second} {shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_announcement_never_shortens_an_earlier_one() {
    let store = Arc::new(store());
    let [long, short] = ["60", "1"].map(|secs| answer(429, &[("retry-after", secs)]));
    let server = Server::new([long, short]);
    let process = || {
        let layer = ThrottleLayer::new(limiter(Arc::clone(&store), FREE));
        layer.max_wait(Duration::from_secs(100)).layer(server.client())
    };
    let (one, other, third) = (process(), process(), process());
    // The second process checks its request before the first process has written its block to the
    // store.
    let flight = async {
        tokio::join!(status(&one), status(&other));
    };
    flight.await;
    let origin = "https://api.example.com:443";
    let in_store = limiter(Arc::clone(&store), FREE);
    let decision = in_store.subject(origin).cost(0).peek().await.unwrap();
    assert!(decision.verdicts()[0].blocked_for() >= Duration::from_secs(60));
    for client in [&third, &one, &other] {
        assert_eq!(status(client).await, 200);
    }
    assert_at(server.times()[2], 60_000, 60_000);
}

/// Two processes receive announcements of 60 s and of 5 s at the same time, and write them in any
/// order. The pause in the store must never become shorter.
#[tokio::test(start_paused = true)]
async fn announcements_written_in_any_order_leave_the_longest_pause_at_every_moment() {
    for delays in [[10, 20], [20, 10]] {
        let store = Arc::new(store());
        let server = Server::new(["60", "5"].map(|secs| answer(429, &[("retry-after", secs)])));
        let [long, short] = delays.map(|millis| {
            let (inner, delay) = (Arc::clone(&store), Duration::from_millis(millis));
            let store = inner.layer(SlowBlocks(delay));
            ThrottleLayer::new(limiter(store, FREE)).layer(server.client())
        });
        let in_store = limiter(Arc::clone(&store), FREE);
        let watch = async {
            let mut latest = Instant::now();
            for _ in 0..200 {
                sleep(Duration::from_millis(1)).await;
                let origin = in_store.subject("https://api.example.com:443").cost(0);
                let blocked = origin.peek().await.unwrap().verdicts()[0].blocked_for();
                if !blocked.is_zero() {
                    let ends = Instant::now() + blocked;
                    assert!(ends >= latest, "{delays:?}: shortened to {blocked:?}");
                    latest = ends;
                }
            }
            latest
        };
        let started = Instant::now();
        let (_, _, latest) = tokio::join!(status(&long), status(&short), watch);
        assert!(latest >= started + Duration::from_secs(60), "{delays:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_place_is_delayed_by_what_is_announced_meanwhile() {
    let store = Arc::new(store());
    let server = Server::new([answer(429, &[("retry-after", "30")])]);
    let process = || {
        let limiter = limiter(Arc::clone(&store), "gcra 1/10s burst 1");
        ThrottleLayer::new(limiter).max_wait(Duration::from_secs(100)).layer(server.client())
    };
    // The second request would have its turn at 10 s. At 1 s, the server announces a pause of 30 s.
    let slow = Client { delay: Some(Duration::from_secs(1)), ..server.client() };
    let first = ThrottleLayer::new(limiter(Arc::clone(&store), "gcra 1/10s burst 1")).layer(slow);
    let second = process();
    let (first, second) = tokio::join!(status(&first), status(&second));
    assert_eq!((first, second), (429, 200));
    assert_at(server.times()[1], 31_000, 30_000);
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_delayed_do_not_come_all_at_once() {
    let store = Arc::new(store());
    let server = Server::new([answer(429, &[("retry-after", "30")])]);
    let limiter = limiter(Arc::clone(&store), "gcra 1/1s burst 1");
    let layer = ThrottleLayer::new(limiter).max_wait(Duration::from_secs(100));
    let client = layer.layer(server.client());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let client = client.clone();
        tasks.spawn(async move { status(&client).await });
    }
    tasks.join_all().await;
    let times = server.times();
    assert_eq!(times.len(), 10);
    assert!(times[1] >= 30_000, "{times:?}");
    assert!(times[1..].windows(2).all(|pair| pair[1] - pair[0] >= 998), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_becomes_ready_late_is_checked_for_again() {
    let store = Arc::new(store());
    let limiter = limiter(Arc::clone(&store), FREE);
    let server = Server::new([]);
    let slow = Client { delay: Some(Duration::from_secs(2)), ..server.client() };
    let client = ThrottleLayer::new(limiter.clone()).layer(slow);
    let block = async {
        sleep(Duration::from_secs(1)).await;
        let origin = "https://api.example.com:443";
        limiter.subject(origin).block(Duration::from_secs(9)).await.unwrap();
    };
    tokio::join!(status(&client), block);
    assert_at(server.times()[0], 10_000, 9_000);
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_bound_is_an_error_at_once() {
    let server = Server::new([answer(429, &[("retry-after", "31")])]);
    let client = ThrottleLayer::new(limiter(store(), FREE)).layer(server.client());
    status(&client).await;
    let error = client.clone().oneshot(get(URI)).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::WaitTooLong);
    assert!(error.retry_after() >= Some(Duration::from_secs(30)));
    assert_eq!(server.times(), [0]);
    let elapsed = server.0.lock().unwrap().started.elapsed();
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn only_what_can_be_copied_is_sent_again_and_only_so_often() {
    let refusals = || Server::new([(); 3].map(|()| answer(429, &[("retry-after", "2")])));
    let layer = || ThrottleLayer::new(limiter(store(), FREE));

    let server = refusals();
    assert_eq!(status(&layer().layer(server.client())).await, 429);
    assert_eq!(server.times().len(), 1, "nothing is sent again by default");

    let server = refusals();
    let client = layer().retry(3, copy_if_safe).layer(server.client());
    let post = Request::post(URI).body(Body::new()).unwrap();
    assert_eq!(client.clone().oneshot(post).await.unwrap().status(), 429);
    assert_eq!(server.times().len(), 1);

    let server = refusals();
    let client = layer().retry(2, copy_if_safe).layer(server.client());
    assert_eq!(status(&client).await, 429);
    let times = server.times();
    assert_eq!(times.len(), 3);
    assert_at(times[1], 2_000, 2_000);
    assert!(times[2] >= times[1] + 2_000);

    let server = refusals();
    let client = layer().retry(5, copy_if_safe).layer(server.client());
    assert_eq!(status(&client).await, 200);
    assert_eq!(server.times().len(), 4);

    // The second retry would exceed `max_wait`, so the caller receives the refusal.
    let server = refusals();
    let client = layer().max_wait(Duration::from_secs(3)).retry(5, copy_if_safe);
    assert_eq!(status(&client.layer(server.client())).await, 429);
    assert_eq!(server.times().len(), 2);

    // A 500, a 503 without an announced time, and a 403 are not retried.
    for (status_code, fields) in [(500, &[][..]), (503, &[]), (403, &[("retry-after", "1")])] {
        let server = Server::new([answer(status_code, fields)]);
        let client = layer().retry(5, copy_if_safe).layer(server.client());
        assert_eq!(status(&client).await, status_code);
        assert_eq!(server.times().len(), 1);
    }
    let server = Server::new([answer(503, &[("retry-after", "1")])]);
    let client = layer().retry(5, copy_if_safe).layer(server.client());
    assert_eq!(status(&client).await, 200);
}

#[test]
fn a_copy_has_the_whole_head_and_needs_no_body_that_is_clone() {
    type Boxed = http_body_util::combinators::UnsyncBoxBody<&'static [u8], Infallible>;
    let request = |method: &str, body: Boxed| {
        let request = Request::builder().method(method).uri(URI).version(Version::HTTP_2);
        request.header("x", "1").header("x", "2").extension(7_u64).body(body).unwrap()
    };
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        let copy = copy_if_safe(&request(method, Boxed::default())).unwrap();
        assert_eq!((copy.method().as_str(), copy.uri()), (method, &URI.parse().unwrap()));
        assert_eq!(copy.version(), Version::HTTP_2);
        assert_eq!(copy.headers().get_all("x").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(copy.extensions().get(), Some(&7_u64));
    }
    assert!(copy_if_safe(&request("POST", Boxed::default())).is_none());
    let full = http_body_util::Full::new(&b"a body"[..]);
    assert!(copy_if_safe(&request("GET", full.boxed_unsync())).is_none());
}

#[tokio::test(start_paused = true)]
async fn subject_and_cost_are_those_of_the_users_functions() {
    let server = Server::new([]);
    let limiter = limiter(store(), "token-bucket 10/10s burst 10");
    let layer = ThrottleLayer::new(limiter.clone())
        .subject(|request| request.uri.query().map(|query| Subject::from(query.to_owned())))
        .cost(|request| if request.uri.path() == "/dear" { 8 } else { 1 });
    let client = layer.layer(server.client());
    for path in ["https://a.com/dear?key", "https://b.com/dear?other", "https://c.com/dear?key"] {
        client.clone().oneshot(get(path)).await.unwrap();
    }
    let times = server.times();
    assert!(times[1] == 0 && (6_000..6_010).contains(&times[2]), "{times:?}");
    let error = client.clone().oneshot(get("https://a.com/")).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::NoSubject);
    let error = ThrottleLayer::new(limiter).layer(server.client()).oneshot(get("/a")).await;
    assert_eq!(error.unwrap_err().kind(), ClientErrorKind::NoSubject);
}

/// A store layer that returns an error for each call.
#[derive(Debug)]
struct Down;

impl<S: Store> StoreLayer<S> for Down {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, _: &'a S, _: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

/// A store layer that delays each block.
#[derive(Debug)]
struct SlowBlocks(Duration);

impl<S: Store> StoreLayer<S> for SlowBlocks {
    const MAY_WAIT: bool = true;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        if !matches!(call.operation, Operation::BlockAtLeast { .. }) {
            return inner.decide(call);
        }
        Answer::later(async move {
            sleep(self.0).await;
            inner.decide(call).await
        })
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        decide_one_by_one(self, inner, calls)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_an_error_and_one_that_fails_open_still_obeys_what_was_announced() {
    let down = || store().layer(Down);
    let server = Server::new([answer(429, &[("retry-after", "5")])]);
    let client = ThrottleLayer::new(limiter(down(), FREE)).layer(server.client());
    let error = client.oneshot(get(URI)).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Store);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("down"));
    assert_eq!(server.times().len(), 0);

    let open = ThrottleLayer::new(limiter(down().or_fail_open(), FREE)).layer(server.client());
    assert_eq!(status(&open).await, 429);
    assert_eq!(status(&open).await, 200);
    assert_at(server.times()[1], 5_000, 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_while_it_waits_leaves_nothing_taken() {
    let limiter = limiter(store(), "gcra 1/10s burst 1");
    let server = Server::new([]);
    let client = ThrottleLayer::new(limiter.clone()).layer(server.client());
    status(&client).await;
    for _ in 0..5 {
        let waiting = timeout(Duration::from_millis(100), client.clone().oneshot(get(URI))).await;
        assert!(waiting.is_err());
    }
    status(&client).await;
    assert!((10_000..10_010).contains(&server.times()[1]), "{:?}", server.times());
}

#[tokio::test(start_paused = true)]
async fn what_was_announced_is_written_even_if_the_caller_goes_away() {
    let store = Arc::new(store().layer(SlowBlocks(Duration::from_secs(1))));
    let server = Server::new([answer(429, &[("retry-after", "20")])]);
    let process = || ThrottleLayer::new(limiter(Arc::clone(&store), FREE)).layer(server.client());
    {
        let first = process();
        let mut call = pin!(first.oneshot(get(URI)));
        assert!(timeout(Duration::from_millis(500), &mut call).await.is_err());
    }
    sleep(Duration::from_secs(1)).await;
    status(&process()).await;
    // The block starts one second after the response, because `SlowBlocks` delays it by one second.
    assert_at(server.times()[1], 21_000, 20_000);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_client_is_given_back() {
    let failing = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::other("refused"))
    });
    let client = ThrottleLayer::new(limiter(store(), FREE)).layer(failing);
    let error = client.oneshot(get(URI)).await.unwrap_err();
    assert_eq!(error.kind(), ClientErrorKind::Client);
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "refused");
    assert_eq!(error.into_client().unwrap().to_string(), "refused");
}
