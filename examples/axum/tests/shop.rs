//! Tests the behavior that the README describes, over a real socket and in virtual time.

mod client;

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use client::Client;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tidegate_example_axum::app;
use tidegate_http::subject::ClientAddress;
use tidegate_memory::{ManualClock, MemoryStore, StoreExt};
use tokio::net::TcpListener;

/// The metrics recorder. All tests share it, because a process can have only one.
static METRICS: LazyLock<PrometheusHandle> =
    LazyLock::new(|| PrometheusBuilder::new().install_recorder().unwrap());

/// Starts the shop. The shop trusts this machine as a proxy, so that a test can send any client
/// address in `X-Forwarded-For`.
async fn shop() -> (Client, ManualClock) {
    let metrics = METRICS.clone();
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().observed();
    let address = ClientAddress::x_forwarded_for(["127.0.0.1"]).unwrap();
    let app = app(store, address, metrics).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
    });
    (Client(server), clock)
}

#[tokio::test]
async fn an_address_has_a_burst_and_then_a_rate() {
    let (client, clock) = shop().await;
    for left in (0..20).rev() {
        let response = client.get("/items", &[]).await;
        assert_eq!(response.status, 200);
        let rate_limit = response.field("ratelimit").unwrap();
        assert!(rate_limit.starts_with(&format!(r#""ip";r={left};t="#)), "{rate_limit}");
        let policy = response.field("ratelimit-policy").unwrap();
        assert_eq!(policy, r#""ip";q=20;w=2, "everybody";q=2000;w=1"#);
    }
    let refused = client.get("/items", &[]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(refused.field("content-type"), Some("application/problem+json"));
    assert!(refused.body.contains(r#""violated-policies":["ip"]"#), "{}", refused.body);
    // The limit also applies to a path that does not exist. It does not apply to the exempt path
    // `/health`.
    assert_eq!(client.get("/nothing", &[]).await.status, 429);
    assert_eq!(client.get("/health", &[]).await.status, 200);
    clock.advance(Duration::from_millis(100));
    assert_eq!(client.get("/nothing", &[]).await.status, 404);
    assert_eq!(client.get("/items/1", &[]).await.status, 429);
}

#[tokio::test]
async fn a_forged_address_is_no_way_around_the_limit() {
    let (client, _) = shop().await;
    let mut admitted = 0;
    for number in 0..30 {
        // The client forges the first address of the field. The proxy appends the client's real
        // address, 203.0.113.9.
        let forged = format!("198.51.100.{number}, 203.0.113.9");
        let response = client.get("/items", &[("X-Forwarded-For", &forged)]).await;
        admitted += usize::from(response.status == 200);
    }
    assert_eq!(admitted, 20);
}

#[tokio::test]
async fn users_have_the_limits_of_their_plans() {
    let (client, clock) = shop().await;
    for (user, burst) in [("Bearer bob", 10), ("Bearer alice", 100)] {
        for number in 0..=burst {
            // The requests have many addresses, so that only the limit of the user is reached.
            let from = format!("203.0.113.{}", number % 50);
            let fields = [("Authorization", user), ("X-Forwarded-For", &from)];
            let response = client.get("/items", &fields).await;
            assert_eq!(response.status, if number < burst { 200 } else { 429 }, "{user} {number}");
        }
    }
    clock.advance(Duration::from_secs(5));
    // After 5 s, Bob's bucket has 5 tokens, which is the cost of one order. The order that fails
    // with a server error is refunded.
    let bob = ("Authorization", "Bearer bob");
    assert_eq!(client.send("POST", "/orders/3", &[bob]).await.status, 503);
    assert_eq!(client.send("POST", "/orders/1", &[bob]).await.status, 201);
    assert_eq!(client.send("POST", "/orders/1", &[bob]).await.status, 429);
}

#[tokio::test]
async fn who_is_no_user_counts_by_address() {
    let (client, _) = shop().await;
    for _ in 0..20 {
        let response = client.send("POST", "/orders/1", &[("Authorization", "Bearer guess")]).await;
        assert_eq!(response.status, 401);
    }
    let response = client.send("POST", "/orders/1", &[("Authorization", "Bearer another")]).await;
    assert_eq!(response.status, 429);
}

#[tokio::test]
async fn scripts_of_other_origins_can_read_a_refusal_and_preflights_do_not_count() {
    let (client, _) = shop().await;
    let origin = ("Origin", "https://example.org");
    for _ in 0..30 {
        let fields = [origin, ("Access-Control-Request-Method", "GET")];
        assert_eq!(client.send("OPTIONS", "/items", &fields).await.status, 200);
    }
    for _ in 0..20 {
        assert_eq!(client.get("/items", &[origin]).await.status, 200);
    }
    let refused = client.get("/items", &[origin]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.field("access-control-allow-origin"), Some("*"));
    let exposed = refused.field("access-control-expose-headers");
    assert_eq!(exposed, Some("ratelimit,ratelimit-policy,ratelimit-warning,retry-after"));
}

#[tokio::test]
async fn metrics_count_decisions_and_are_not_limited() {
    let (client, _) = shop().await;
    for _ in 0..25 {
        client.get("/items", &[]).await;
        assert_eq!(client.get("/metrics", &[]).await.status, 200);
    }
    let metrics = client.get("/metrics", &[]).await.body;
    assert!(
        metrics.contains(r#"tidegate_decisions_total{policy="ip",outcome="denied""#),
        "{metrics}"
    );
}
