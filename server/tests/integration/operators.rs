//! The calls of operators for the limits of a request of Envoy.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_core::{CurrentLimits, ErrorKind, StoreExt};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::json::{operator_routes, routes};
use tidegate_server::envoy::service::Service;
use tidegate_server::net::access::Access;
use tidegate_server::net::http::{HttpSettings, serve};
use tidegate_server::net::login::Login;
use tidegate_server::observe::activity::{Activity, ActivitySettings, LimitsQuery};
use tidegate_testkit::faults::{Fault, Faults};
use tokio::net::TcpListener;

use crate::http::client::{Answer, Client, request};
use crate::scene::{Scene, decider};
use crate::v1::JSON;
use crate::v1::schema::check;

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: plan, policy: 'plan: fixed-window 1/1h'}\n\
    - {key: named, name: plan, policy: 'own: gcra 1/1h'}\n\
    - {key: counted, rate_limit: {unit: hour, requests_per_unit: 1}}\n\
    - {key: second, rate_limit: {unit: second, requests_per_unit: 1}}\n\
    - {key: file, value: 'a*', share_threshold: true, policy: 'fixed-window 1/1h'}\n\
    - {key: login, policy: 'sliding-log 1/1h block 1h'}\n\
    - {key: back, policy: 'fixed-window 2/1h', refunds: true}\n\
    - {key: pool, policy: 'p: fair-pool 10/1h'}\n\
    - {key: job, policy: 'jobs: concurrent 1 lease 30s', hold_id: true}\n";

async fn listen(service: Service, access: Access, settings: HttpSettings) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = Arc::new(service);
    let routes = routes(Arc::clone(&service), None).merge(operator_routes(service, access));
    tokio::spawn(serve(listener, routes, settings, std::future::pending()));
    address
}

async fn start(decider: Decider) -> SocketAddr {
    listen(Service::new(decider), Access::Open, HttpSettings::default()).await
}

fn body(descriptors: &[(&str, &str)], more: &Value) -> Value {
    let descriptor = |(key, value)| json!({"entries": [{"key": key, "value": value}]});
    let descriptors: Vec<Value> = descriptors.iter().copied().map(descriptor).collect();
    let mut body = json!({"domain": "d", "descriptors": descriptors});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    Client::connect(address).await.call("POST", path, JSON, &body.to_string()).await
}

/// Returns `true` if a request with one hit is admitted.
async fn passes(address: SocketAddr, key: &str, value: &str) -> bool {
    post(address, "/json", &body(&[(key, value)], &json!({}))).await.status == 200
}

/// Sends a call of an operator. Fails if the OpenAPI document does not describe the answer.
async fn operate(address: SocketAddr, call: &str, body: &Value) -> (u16, Value) {
    let answer = post(address, &format!("/json/{call}"), body).await;
    check("/json/{call}", "post", &answer);
    (answer.status, answer.json())
}

#[tokio::test]
async fn a_reset_reaches_the_state_of_each_kind_of_limit_and_no_other() {
    let Scene { clock, decider } = Scene::new(CONFIG);
    let per_second = Arc::new(MemoryStore::builder().clock(clock).build());
    let limits = CurrentLimits::default();
    // Two overrides have states of their own, because they have another algorithm.
    let set = "plan: sliding-log 1/1h for subject alice\nplan: sliding-log 1/2h for subject bob\n";
    limits.replace(set.parse().unwrap());
    let decider = decider.with_limits(limits).with_per_second_store(per_second);
    let address = start(decider).await;
    for (key, policy, subject) in [
        ("plan", "plan: sliding-log 1/1h", "d|plan=alice"),
        ("named", "own: sliding-log 1/1h", "d|named=alice"),
        ("counted", "rate_limit: fixed-window 1/1h", "d|counted=alice"),
        // The counter of a limit per second is in a store of its own.
        ("second", "rate_limit: fixed-window 1/1s", "d|second=alice"),
        ("file", "policy: fixed-window 1/1h", "d|file*=a%2A"),
        ("login", "policy: sliding-log 1/1h block 1h", "d|login=alice"),
        ("job", "jobs: concurrent 1 lease 30s", "d|job"),
    ] {
        assert!(passes(address, key, "alice").await, "{key}");
        let other = if key == "file" { "b" } else { "bob" };
        passes(address, key, other).await;
        let second = if key == "job" { "carol" } else { "alice" };
        assert!(!passes(address, key, second).await, "{key}");
        let (status, answer) =
            operate(address, "reset", &body(&[(key, "alice")], &json!({}))).await;
        let limit = &answer["limits"][0];
        assert_eq!(
            (status, &limit["policy"], &limit["subject"]),
            (200, &json!(policy), &json!(subject))
        );
        assert!(passes(address, key, second).await, "{key}");
        if !["file", "job"].contains(&key) {
            assert!(!passes(address, key, other).await, "{key}");
        }
    }
}

#[tokio::test]
async fn a_reset_forgets_refused_hits() {
    let address = start(Scene::new(CONFIG).decider).await;
    let hits = |hits: u64, is_refund: bool| {
        let mut body = body(&[("back", "alice")], &json!({}));
        body["descriptors"][0]["hitsAddend"] = json!(hits);
        body["descriptors"][0]["isNegativeHits"] = json!(is_refund);
        body
    };
    assert_eq!(post(address, "/json", &hits(3, false)).await.status, 429);
    operate(address, "reset", &body(&[("back", "alice")], &json!({}))).await;
    assert_eq!(post(address, "/json", &hits(2, false)).await.status, 200);
    // If the three refused hits were known, the refund would be reduced to 0.
    assert_eq!(post(address, "/json", &hits(2, true)).await.status, 200);
    assert_eq!(post(address, "/json", &hits(2, false)).await.status, 200);
}

#[tokio::test]
async fn blocks_and_bans_reach_the_state_of_an_override() {
    let limits = CurrentLimits::default();
    limits.replace("plan: sliding-log 9/1h for subject alice".parse().unwrap());
    let activity = Activity::new(ActivitySettings::default(), Vec::new(), Instant::now());
    let activity = Arc::new(activity);
    let service = Service::new(Scene::new(CONFIG).decider.with_limits(limits));
    let service = service.activity(Some(Arc::clone(&activity)));
    let address = listen(service, Access::Open, HttpSettings::default()).await;
    let alice = [("named", "alice")];
    let ban = body(&alice, &json!({"ban_ms": 60_000, "reason": "stolen passwords"}));
    let (status, answer) = operate(address, "ban", &ban).await;
    assert_eq!((status, &answer["limits"][0]["blocked_for_ms"]), (200, &json!(60_000)));
    assert!(!passes(address, "named", "alice").await);
    assert!(passes(address, "named", "bob").await);
    let block =
        |ms: u64, at_least: bool| body(&alice, &json!({"block_ms": ms, "at_least": at_least}));
    for (ms, at_least, blocked_for) in [(1_000, true, 60_000), (1_000, false, 1_000)] {
        let (_, answer) = operate(address, "block", &block(ms, at_least)).await;
        assert_eq!(answer["limits"][0]["blocked_for_ms"], blocked_for);
    }
    let (_, answer) = operate(address, "unban", &body(&alice, &json!({}))).await;
    assert_eq!(answer["limits"][0]["blocked_for_ms"], 0);
    assert!(passes(address, "named", "alice").await);
    // The page shows the ban and its end, and no other block.
    let snapshot = activity.snapshot(&LimitsQuery::default());
    let bans = snapshot["bans"].as_array().unwrap().iter();
    let bans: Vec<_> = bans.map(|ban| (&ban["protocol"], &ban["limit"], &ban["reason"])).collect();
    let (envoy, limit) = (json!("envoy"), json!("d.named"));
    let reason = json!("stolen passwords");
    assert_eq!(bans, [(&envoy, &limit, &Value::Null), (&envoy, &limit, &reason)]);
}

#[tokio::test]
async fn a_ban_that_is_not_valid_changes_nothing() {
    let address = start(Scene::new(CONFIG).decider).await;
    for (ban, why) in [
        (json!({"ban_ms": 0, "reason": "x"}), "it must last at least 1us"),
        (json!({"ban_ms": 60_000, "reason": ""}), "it must have 1 to 128"),
        (json!({"ban_ms": 60_000, "reason": "a\nb"}), "control characters"),
    ] {
        let (status, answer) = operate(address, "ban", &body(&[("plan", "alice")], &ban)).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(why), "{answer}");
    }
    assert!(passes(address, "plan", "alice").await);
}

#[tokio::test]
async fn a_call_that_one_limit_does_not_support_changes_no_limit() {
    let address = start(Scene::new(CONFIG).decider).await;
    for (key, why) in [("counted", "a `rate_limit` only counts"), ("pool", "fair pool")] {
        let block = body(&[("plan", "alice"), (key, "alice")], &json!({"block_ms": 60_000}));
        let (status, answer) = operate(address, "block", &block).await;
        assert_eq!(status, 400);
        assert!(answer["message"].as_str().unwrap().contains(why), "{answer}");
    }
    assert!(passes(address, "plan", "alice").await);
}

#[tokio::test]
async fn each_status_of_an_operators_call_occurs() {
    let service = || Service::new(Scene::new(CONFIG).decider);
    let failing = MemoryStore::new().layer(Faults::new(vec![Fault::Before(ErrorKind::Timeout); 9]));
    let failing = start(decider(Arc::new(failing), CONFIG, Behaviour::default())).await;
    let settings = HttpSettings::default;
    let closed = listen(service(), Access::Closed, settings()).await;
    let login = Access::Login(Login { user: "default".into(), password: "x".into() });
    let login = listen(service(), login, settings()).await;
    let mut bounds = settings();
    bounds.max_body_bytes = 400;
    bounds.request_timeout = Duration::from_millis(300);
    let bounded = listen(service(), Access::Open, bounds).await;
    let open = listen(service(), Access::Open, settings()).await;

    let reset = body(&[("plan", "alice")], &json!({})).to_string();
    let none = body(&[("nothing", "alice")], &json!({})).to_string();
    let mut seen = BTreeSet::new();
    for (address, call, fields, body, status) in [
        (open, "reset", JSON, &*reset, 200),
        (open, "reset", JSON, "{}", 400),
        (open, "reset", JSON, "{", 400),
        (open, "block", JSON, &*reset, 400),
        (open, "ban", JSON, &*reset, 400),
        (open, "rest", JSON, &*reset, 404),
        (open, "reset", JSON, &*none, 404),
        (open, "reset", "", &*reset, 415),
        (failing, "reset", JSON, &*reset, 503),
        (closed, "reset", JSON, &*reset, 403),
        (login, "reset", JSON, &*reset, 401),
        (bounded, "reset", JSON, &*" ".repeat(401), 413),
    ] {
        let path = format!("/json/{call}");
        let answer = Client::connect(address).await.call("POST", &path, fields, body).await;
        check("/json/{call}", "post", &answer);
        assert_eq!(answer.status, status, "{call} {body}: {}", answer.body);
        seen.insert(status);
    }
    let mut slow = Client::connect(bounded).await;
    let all = request("POST", "/json/reset", JSON, &reset);
    slow.send(&all[..all.len() - 1]).await;
    let answer = slow.answer().await.unwrap();
    check("/json/{call}", "post", &answer);
    seen.insert(answer.status);
    let document: Value = serde_json::from_str(tidegate_server::calls::v1::OPENAPI).unwrap();
    let described = document["paths"]["/json/{call}"]["post"]["responses"].as_object().unwrap();
    assert_eq!(seen, described.keys().map(|status| status.parse().unwrap()).collect());
}
