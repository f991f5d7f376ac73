//! Sends bytes as HTTP, and bodies to the routes that read JSON.

use std::sync::Arc;

use axum::Router;
use serde_json::Value;
use tidegate_server::calls::v1;
use tidegate_server::calls::{Calls, Verb};
use tidegate_server::envoy::json;
use tidegate_server::net::access::Access;
use tidegate_server::net::http::{HttpSettings, serve_stream};

use super::{exchange, in_virtual_time, service, store};

/// The maximum length of an error message, in bytes. A message must not repeat the whole request.
const MAX_MESSAGE_BYTES: usize = 1_000;

struct Response {
    status: u16,
    is_json: bool,
    body: Vec<u8>,
}

/// Checks that the server answers any bytes with well-formed responses that have a documented
/// status.
pub(crate) fn check_bytes(bytes: &[u8], part: usize) {
    let answer = answer_to(bytes, part);
    // The response to `HEAD` has the length of a body but no body, so the check cannot find the
    // next response.
    if bytes.windows(4).any(|window| window == b"HEAD") {
        return;
    }
    for response in responses(&answer) {
        check_response(&response);
    }
}

/// Checks that any body gets one response from `/json` or from a route of `/v1`.
pub(crate) fn check_body(body: &[u8], route: usize) {
    let verb = Verb::ALL.get(route % (Verb::ALL.len() + 1));
    let path = verb.map_or("/json".to_owned(), |verb| format!("/v1/{}", verb.as_str()));
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    let answer = answer_to(&request, request.len());
    let responses = responses(&answer);
    assert_eq!(responses.len(), 1, "{}", answer.escape_ascii());
    let response = &responses[0];
    check_response(response);
    assert!(matches!(response.status, 200 | 400 | 404 | 409 | 410 | 429), "{}", response.status);
    if response.status == 400 {
        assert!(response.body.len() < MAX_MESSAGE_BYTES, "{}", response.body.escape_ascii());
        let text = String::from_utf8(response.body.clone()).unwrap();
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
    }
}

fn check_response(response: &Response) {
    assert!(
        matches!(response.status, 200 | 400 | 404 | 405 | 408..=410 | 413..=415 | 429 | 431),
        "{}",
        response.status
    );
    if response.is_json {
        assert!(serde_json::from_slice::<Value>(&response.body).unwrap().is_object());
    }
}

fn answer_to(bytes: &[u8], part: usize) -> Vec<u8> {
    in_virtual_time(async {
        let calls = v1::routes(Arc::new(Calls::new(store())), Access::Open);
        let routes: Router = json::routes(service(), None).merge(calls);
        let (client, server) = tokio::io::duplex(64 << 10);
        let settings = HttpSettings::default();
        let served = tokio::spawn(async move { serve_stream(server, routes, &settings).await });
        let answer = exchange(client, bytes, part, false).await;
        let _ = served.await.unwrap();
        answer
    })
}

fn responses(mut bytes: &[u8]) -> Vec<Response> {
    let mut responses = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let mut status = lines.next().unwrap().split(' ');
        assert!(matches!(status.next(), Some("HTTP/1.1" | "HTTP/1.0")), "{head}");
        let status: u16 = status.next().unwrap().parse().unwrap();
        let (mut length, mut is_json) = (0, false);
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{head}"));
            match name {
                "content-length" => length = value.parse().unwrap(),
                "content-type" => is_json = value == "application/json",
                _ => assert_ne!(name, "transfer-encoding"),
            }
        }
        let (body, rest) = bytes.split_at(length);
        bytes = rest;
        if status != 100 {
            responses.push(Response { status, is_json, body: body.to_vec() });
        }
    }
    responses
}
