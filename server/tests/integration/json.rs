//! Tests Envoy's rate-limit protocol in JSON over HTTP/1.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_server::envoy::json::{read_request, routes};
use tidegate_server::envoy::service::Service;
use tidegate_server::net::http::{HttpSettings, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::scene::Scene;

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n\
    - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}\n\
    - {key: c, policy: 'login: gcra 1/s'}\n";

async fn start(service: Service) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = routes(Arc::new(service), None);
    tokio::spawn(serve(listener, routes, HttpSettings::default(), std::future::pending()));
    address
}

pub(crate) async fn call(
    address: std::net::SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // The write may fail, because the server can refuse the body and close the connection before it
    // has read the whole body.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn g20_two_limits_of_one_request() {
    let address = start(Service::new(Scene::new(CONFIG).decider)).await;
    let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}, {"entries": [{"key": "b"}]}]}"#;
    let (status, _) = call(address, "POST", "/json", body).await;
    assert_eq!(status, 200);
    let (status, body) = call(address, "POST", "/json", body).await;
    assert_eq!(status, 429);
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({
            "overallCode": "OVER_LIMIT",
            "statuses": [
                {
                    "code": "OVER_LIMIT",
                    "currentLimit": {"requestsPerUnit": 1, "unit": "MINUTE"},
                    "durationUntilReset": "12s",
                },
                {
                    "code": "OK",
                    "currentLimit": {"requestsPerUnit": 2, "unit": "MINUTE"},
                    "durationUntilReset": "12s",
                },
            ],
        })
    );
}

#[tokio::test]
async fn what_is_no_request_is_a_400() {
    let address = start(Service::new(Scene::new(CONFIG).decider)).await;
    for (body, why) in [
        ("", "EOF while parsing"),
        ("[]", "the request is a list; it must be an object"),
        ("\"_t\x7flt\"", "the request is \"_t\\u{7f}lt\"; it must be an object"),
        (r#"{"domain": "d"}"#, "rate limit descriptor list must not be empty"),
        (r#"{"domain": "", "descriptors": []}"#, "rate limit domain must not be empty"),
        (r#"{"doman": "d"}"#, "unknown field \"doman\""),
        (&"[".repeat(10_000), "recursion limit exceeded"),
    ] {
        let (status, answer) = call(address, "POST", "/json", body).await;
        assert_eq!(status, 400, "{body}");
        assert!(answer.starts_with("Bad Request: ") && answer.contains(why), "{answer}");
    }
    let too_long = " ".repeat(HttpSettings::default().max_body_bytes + 1);
    assert_eq!(call(address, "POST", "/json", &too_long).await.0, 413);
    assert_eq!(call(address, "GET", "/json", "").await.0, 405);
    assert_eq!(call(address, "GET", "/", "").await.0, 404);
}

#[tokio::test]
async fn health_needs_limits_and_a_store() {
    let address = start(Service::new(Scene::new(CONFIG).decider)).await;
    assert_eq!(call(address, "GET", "/healthcheck", "").await, (200, "OK".to_owned()));
    let store = Arc::new(tidegate_memory::MemoryStore::new());
    let without = tidegate_server::envoy::decide::Decider::new(store, Default::default());
    let address = start(Service::new(without)).await;
    let expected = "no rate limit configuration loaded\n";
    assert_eq!(call(address, "GET", "/healthcheck", "").await, (500, expected.to_owned()));
}

#[tokio::test]
async fn the_limits_in_force_are_shown_with_their_places() {
    let address = start(Service::new(Scene::new(CONFIG).decider)).await;
    let (status, body) = call(address, "GET", "/config", "").await;
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({
            "domains": ["d"],
            "limits": [
                {"key": "d.a", "limit": "1 per 1m", "place": "limits.yaml:3:3"},
                {"key": "d.b", "limit": "2 per 1m", "place": "limits.yaml:4:3"},
                {"key": "d.c", "limit": "login: gcra 1/1s burst 1", "place": "limits.yaml:5:20"},
            ],
        })
    );
}

#[test]
fn requests_are_read_in_either_style() {
    let read = |text: &str| read_request(text.as_bytes()).map_err(|error| error.to_string());
    let camel = read(
        r#"{"domain": "d", "hitsAddend": 2, "descriptors": [{
        "entries": [{"key": "k", "value": "v"}], "hitsAddend": "18446744073709551615",
        "isNegativeHits": true, "limit": {"requestsPerUnit": 5, "unit": "MINUTE"}}]}"#,
    );
    let snake = read(
        r#"{"domain": "d", "hits_addend": "2", "descriptors": [{
        "entries": [{"key": "k", "value": "v"}], "hits_addend": 18446744073709551615,
        "is_negative_hits": true, "limit": {"requests_per_unit": "5", "unit": 2}}]}"#,
    );
    assert_eq!(camel, snake);
    let request = camel.unwrap();
    assert_eq!(request.hits_addend, 2);
    let descriptor = &request.descriptors[0];
    assert_eq!(descriptor.hits_addend.unwrap().value, u64::MAX);
    assert!(descriptor.is_negative_hits);
    assert_eq!(descriptor.limit.map(|limit| (limit.requests_per_unit, limit.unit)), Some((5, 2)));
    assert_eq!(read(r#"{"domain": null}"#).unwrap(), Default::default());
    for (text, why) in [
        (r#"{"hitsAddend": -1}"#, "hitsAddend is -1; it must be a whole number of at least 0"),
        (r#"{"hitsAddend": 4294967296}"#, "it must be at most 4294967295"),
        (r#"{"descriptors": {}}"#, "descriptors is an object; it must be a list"),
        (r#"{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#, "it must be a unit"),
        (r#"{"descriptors": [{"entries": [{"key": 5}]}]}"#, "key is 5; it must be a text"),
        (r#"{"descriptors": [{"isNegativeHits": "yes"}]}"#, "it must be true or false"),
        (r#"{"hitsAddend": 1, "hits_addend": 2}"#, "the field \"hits_addend\" is given twice"),
        (r#"{"domain": "a", "domain": "a"}"#, "the field \"domain\" is given twice"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let fields = (0..17).map(|number| format!("\"{number}\": 1")).collect::<Vec<_>>().join(", ");
    let error = read(&format!("{{{fields}}}")).unwrap_err();
    assert_eq!(error, "the request has 17 fields; it has at most 16");
}

#[tokio::test]
async fn slots_are_taken_and_freed() {
    let config =
        "domain: d\ndescriptors: [{key: id, policy: concurrent 1 lease 1m, hold_id: true}]";
    let address = start(Service::new(Scene::new(config).decider)).await;
    let ask = async |id: &str, is_end: bool| {
        let entries = json!([{"key": "id", "value": id}]);
        let descriptors = json!([{"entries": entries, "isNegativeHits": is_end}]);
        let body = json!({"domain": "d", "descriptors": descriptors}).to_string();
        let (status, body) = call(address, "POST", "/json", &body).await;
        (status, serde_json::from_str::<Value>(&body).unwrap()["statuses"][0].clone())
    };
    let limit = json!({"requestsPerUnit": 1});
    assert_eq!(ask("a", false).await, (200, json!({"code": "OK", "currentLimit": limit})));
    assert_eq!(ask("b", false).await, (429, json!({"code": "OVER_LIMIT", "currentLimit": limit})));
    assert_eq!(ask("b", true).await, (200, json!({"code": "OK"})));
    let freed = json!({"code": "OK", "currentLimit": limit, "limitRemaining": 1});
    assert_eq!(ask("a", true).await, (200, freed));
    assert_eq!(ask("b", false).await.0, 200);
}
