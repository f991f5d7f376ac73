//! Tests of connections that are upgraded. Their holds are open until the connections close.

use axum::routing::get;
use http::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tidegate_http::server::hold::OnDrop;
use tidegate_memory::core::TokioClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::service_fn;

use super::*;

type Upgradable = Limiter<MemoryStore<TokioClock>>;

fn limits() -> (Upgradable, HoldLayer<MemoryStore<TokioClock>>) {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let policies = ["slots: concurrent 1 lease 3s", "tokens: fixed-window 10000/365d anchored"];
    let policies = policies.map(|text| text.parse::<Policy>().unwrap());
    let limiter = Limiter::new(store, policies).unwrap();
    let limits = [Limit::by("slots", Everybody), Limit::by("tokens", Everybody).cost(100)];
    let layer = RateLimitLayer::new(limiter.clone(), limits).unwrap();
    let layer = layer.hold_for(TTL, [("tokens", ActualCost::usage("tokens"))]).unwrap();
    // The end of a connection is not a cut.
    (limiter, layer.if_cut(OnDrop::Keep).report_every(Duration::ZERO))
}

/// Returns the number of free slots, and the number of charged tokens.
async fn free_and_charged(limiter: &Upgradable) -> (u64, u64) {
    let peek = limiter.subject("").cost(0).peek().await.unwrap();
    let [slots, tokens] = peek.verdicts() else { panic!("{peek:?}") };
    (slots.remaining(), 10_000 - tokens.remaining())
}

#[tokio::test(start_paused = true)]
async fn the_hold_of_an_upgraded_connection_is_open_until_the_connection_closes() {
    let upgrades =
        [(Method::GET, 101, true), (Method::CONNECT, 200, true), (Method::GET, 101, false)];
    for (method, status, is_read) in upgrades {
        let (limiter, layer) = limits();
        let connection = Arc::new(Mutex::new(None));
        let mut service = layer.layer(service_fn(|request: Request<()>| {
            *connection.lock().unwrap() = Some(Usage::from_extensions(request.extensions()));
            let (steps, usage) = (VecDeque::new(), Usage::default());
            let body = PlannedBody { steps, usage, waiting: None, knows_its_end: false };
            let response = Response::builder().status(status).body(body).unwrap();
            std::future::ready(Ok::<_, Failed>(response))
        }));
        let mut send = async || {
            let request = Request::builder().method(method.clone()).body(()).unwrap();
            service.call(request).await.unwrap()
        };
        let response = send().await;
        assert_eq!(response.status().as_u16(), status);
        match is_read {
            true => drop(response.into_body().collect().await),
            false => drop(response),
        }
        // The connection is open for longer than the lease, and than the life of the hold.
        for second in 1..=300 {
            connection.lock().unwrap().as_ref().unwrap().add("tokens", 1);
            sleep(Duration::from_secs(1)).await;
            assert_eq!(send().await.status(), StatusCode::TOO_MANY_REQUESTS, "after {second} s");
        }
        let (free, charged) = free_and_charged(&limiter).await;
        assert!(free == 0 && (298..=300).contains(&charged), "{charged}");
        *connection.lock().unwrap() = None;
        limiter.guards_settled().await;
        assert_eq!(free_and_charged(&limiter).await, (1, 300));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_keep_its_usage_frees_the_slots_immediately() {
    let (limiter, layer) = limits();
    let mut service = layer.layer(service_fn(|request: Request<()>| {
        Usage::from_extensions(request.extensions()).add("tokens", 7);
        let response = Response::builder().status(101).body(String::new()).unwrap();
        std::future::ready(Ok::<_, Failed>(response))
    }));
    drop(service.call(Request::new(())).await.unwrap());
    limiter.guards_settled().await;
    assert_eq!(free_and_charged(&limiter).await, (1, 7));
}

/// The client of a real connection disconnects without a farewell.
#[tokio::test]
async fn a_client_that_disconnects_frees_the_slot_of_its_upgraded_connection() {
    let (limiter, layer) = limits();
    let upgrade = async |usage: Usage, request: axum::extract::Request| {
        tokio::spawn(async move {
            let mut connection = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            let mut bytes = [0; 64];
            while let Ok(size @ 1..) = connection.read(&mut bytes).await {
                usage.add("tokens", size as u64);
                connection.write_all(&bytes[..size]).await.unwrap();
            }
        });
        let head = Response::builder().status(101).header("connection", "upgrade");
        head.header("upgrade", "echo").body(axum::body::Body::empty()).unwrap()
    };
    let app = axum::Router::new().route("/", get(upgrade)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut client = TcpStream::connect(address).await.unwrap();
    let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let size = client.read(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{:?}", answer[..size].escape_ascii());
    client.write_all(b"hello").await.unwrap();
    client.read_exact(&mut answer[..5]).await.unwrap();
    assert_eq!(free_and_charged(&limiter).await.0, 0);
    drop(client);
    limiter.guards_settled().await;
    assert_eq!(free_and_charged(&limiter).await, (1, 5));
}

/// The layers of the outer and the inner hold both have limits for the request.
#[tokio::test(start_paused = true)]
async fn the_holds_of_two_layers_are_open_until_the_connection_closes() {
    let ((outer, outside), (inner, inside)) = (limits(), limits());
    let connection = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&connection);
    let upgrade = async move |usage: Usage| {
        *kept.lock().unwrap() = Some(usage);
        StatusCode::SWITCHING_PROTOCOLS
    };
    let app = axum::Router::new().route("/", get(upgrade)).layer(inside).layer(outside);
    let request = Request::new(axum::body::Body::empty());
    drop(tower::ServiceExt::oneshot(app, request).await.unwrap());
    for _ in 0..20 {
        connection.lock().unwrap().as_ref().unwrap().add("tokens", 1);
        sleep(Duration::from_secs(1)).await;
        assert_eq!((free_and_charged(&outer).await.0, free_and_charged(&inner).await.0), (0, 0));
    }
    assert_eq!(connection.lock().unwrap().as_ref().unwrap().total("tokens"), Some(20));
    *connection.lock().unwrap() = None;
    for limiter in [inner, outer] {
        limiter.guards_settled().await;
        assert_eq!(free_and_charged(&limiter).await, (1, 20));
    }
}
