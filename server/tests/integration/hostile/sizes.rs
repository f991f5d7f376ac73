//! Tests subjects with any bytes, and subjects of the maximum length.

use std::sync::Arc;

use axum::Router;
use serde_json::json;
use tidegate_core::MAX_SUBJECT;
use tidegate_memory::MemoryStore;
use tidegate_server::calls::Calls;
use tidegate_server::calls::v1;
use tidegate_server::envoy::json;
use tidegate_server::envoy::service::Service;
use tidegate_server::net::access::Access;
use tidegate_server::net::http::{HttpSettings, serve};
use tokio::net::TcpListener;

use crate::checks::grpc::{HEADERS, ask, frames};
use crate::http::client::{Answer, Client};
use crate::scene::{Scene, descriptor, request};

const CONFIG: &str = "domain: d\ndescriptors: [{key: a, policy: gcra 1/s burst 9}]";

/// Connects a client to a new server that accepts bodies larger than the longest subject.
async fn client() -> Client {
    let mut settings = HttpSettings::default();
    settings.max_body_bytes = 4 << 20;
    let calls = v1::routes(Arc::new(Calls::new(Arc::new(MemoryStore::new()))), Access::Open);
    let service = Arc::new(Service::new(Scene::new(CONFIG).decider));
    let routes: Router = json::routes(service, None).merge(calls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, routes, settings, std::future::pending()));
    Client::connect(address).await
}

async fn post(client: &mut Client, path: &str, body: serde_json::Value) -> Answer {
    client.call("POST", path, "Content-Type: application/json\r\n", &body.to_string()).await
}

#[tokio::test]
async fn a_subject_of_a_mebibyte_is_counted_and_a_longer_one_is_refused() {
    let client = &mut client().await;
    for len in [MAX_SUBJECT, MAX_SUBJECT + 1, 2 * MAX_SUBJECT] {
        let subject = "x".repeat(len);
        let answer =
            post(client, "/v1/acquire", json!({"policy": "gcra 1/s", "subject": subject})).await;
        let is_possible = len <= MAX_SUBJECT;
        assert_eq!(answer.status, if is_possible { 200 } else { 400 }, "{}", answer.body);
        for number in [len, MAX_SUBJECT] {
            assert!(is_possible || answer.body.contains(&number.to_string()), "{}", answer.body);
        }

        let descriptors = json!([{"entries": [{"key": "a", "value": subject}]}]);
        let body = json!({"domain": "d", "descriptors": descriptors});
        let answer = post(client, "/json", body).await;
        // The subject also contains the domain and the key, so even a value of `MAX_SUBJECT` bytes
        // is too long.
        assert_eq!(answer.status, 400);
        assert!(answer.body.starts_with("Bad Request: a descriptor has "), "{}", answer.body);
        assert!(answer.body.ends_with(" bytes; at most 1048576 are possible\n"), "{}", answer.body);
    }
    let longest = "x".repeat(MAX_SUBJECT - 100);
    let descriptors = json!([{"entries": [{"key": "a", "value": longest}]}]);
    let body = json!({"domain": "d", "descriptors": descriptors});
    assert_eq!(post(client, "/json", body).await.status, 200);
}

#[tokio::test]
async fn characters_of_all_kinds_are_values_of_their_own() {
    let client = &mut client().await;
    let values = ["\0", "\r\n", "{a}", "a:b", "|", "*", "%00", "\u{202e}", "\u{10ffff}", "", "a\0"];
    for value in values {
        // Each value must have its own state, so its first request is admitted, and its second
        // request is refused.
        for status in [200, 429] {
            let entry = json!({"key": "other", "value": value});
            let limit = json!({"requestsPerUnit": 1, "unit": "YEAR"});
            let descriptors = json!([{"entries": [entry], "limit": limit}]);
            let body = json!({"domain": "d", "descriptors": descriptors});
            let answer = post(client, "/json", body).await;
            assert_eq!(answer.status, status, "{value:?}: {}", answer.body);
        }
    }
}

#[test]
fn a_message_that_is_cut_off_is_refused_and_the_server_goes_on() {
    let broken = b"\0\0\0\0\x0a\x0a\x01d\x12\x06\x0a\x03\x0a\x01u";
    let answer = ask(broken);
    // The answer contains a status and no message.
    assert!(frames(&answer).iter().all(|frame| frame.kind != 0), "{}", answer.escape_ascii());
    assert!(frames(&answer).iter().any(|frame| frame.kind == HEADERS), "{}", answer.escape_ascii());
    crate::checks::grpc::check_serving();
}

#[test]
fn a_request_has_at_most_a_thousand_descriptors() {
    let scene = Scene::new(CONFIG);
    let ask = |count| scene.decided(&request("d", vec![descriptor(&[("other", "")]); count]));
    assert_eq!(ask(1_000).unwrap().response.statuses.len(), 1_000);
    let error = ask(1_001).unwrap_err().to_string();
    assert_eq!(error, "the request has 1001 descriptors; at most 1000 are possible");
}
