//! Tests requests of Envoy whose domain, keys or values are not UTF-8. Envoy copies these texts
//! from HTTP header fields, which may contain any bytes.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use metrics_exporter_prometheus::PrometheusBuilder;
use prost::Message;
use tidegate_server::envoy::decide::Behaviour;
use tidegate_server::envoy::grpc::{GrpcSettings, serve};
use tidegate_server::envoy::json::ShownResponse;
use tidegate_server::envoy::request::{Entry, RateLimitDescriptor, RateLimitRequest};
use tidegate_server::envoy::service::Service;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::checks::grpc as frames;
use crate::scene::{Scene, block_on, is_ok};

const LIMITS: &str = r"
domain: d
descriptors:
- {key: account, policy: fixed-window 3/365d}
- {key: named, value: dave, policy: fixed-window 1/365d}
- {key: pattern, value: dave*, policy: fixed-window 1/365d}
- {key: shared, value: dave*, share_threshold: true, policy: fixed-window 1/365d}
- {key: detailed, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 9}}
- {key: metric, value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 9}}
";

fn request(domain: &[u8], key: &[u8], value: &[u8]) -> RateLimitRequest {
    let entry = Entry { key: Bytes::copy_from_slice(key), value: Bytes::copy_from_slice(value) };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let domain = Bytes::copy_from_slice(domain);
    RateLimitRequest { domain, descriptors: vec![descriptor], hits_addend: 0 }
}

fn passes(scene: &Scene, key: &str, value: &[u8]) -> bool {
    is_ok(&scene.ask(&request(b"d", key.as_bytes(), value)))
}

/// Returns a request as a gRPC message: a byte for compression, the length, and the encoded
/// request.
fn message(request: &RateLimitRequest) -> Vec<u8> {
    let message = request.encode_to_vec();
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
}

/// Sends the messages to the service on one gRPC connection. Returns the code of each decision, or
/// the bytes of the answer if the service did not decide.
async fn answers(service: Arc<Service>, messages: &[Vec<u8>]) -> Vec<Result<Code, String>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    tokio::spawn(serve(listener, service, GrpcSettings::default(), std::future::pending()));
    let mut answers = Vec::new();
    for (number, message) in (0_u32..).zip(messages) {
        let call = match number {
            0 => frames::call(message),
            _ => frames::call_on(2 * number + 1, message),
        };
        stream.write_all(&call).await.unwrap();
        let mut answer = Vec::new();
        while !frames::frames(&answer).iter().any(frames::Frame::ends_stream) {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", answer.escape_ascii());
        }
        let data = frames::frames(&answer).into_iter().find(|frame| frame.kind == frames::DATA);
        answers.push(match data {
            Some(data) => Ok(RateLimitResponse::decode(&data.payload[5..]).unwrap().overall_code()),
            None => Err(answer.escape_ascii().to_string()),
        });
    }
    answers
}

#[test]
fn b95_a_value_of_any_bytes_is_limited_over_grpc_like_any_other() {
    let service = Arc::new(Service::new(Scene::new(LIMITS).decider));
    let values = [&b"dave\xff"[..], b"dave\xfe", b"\xc3(", b"\0\xed\xa0\x80", b"dave\\xff"];
    for value in values {
        let messages = vec![message(&request(b"d", b"account", value)); 5];
        let codes = block_on(answers(Arc::clone(&service), &messages));
        let expected = [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit];
        assert_eq!(codes, expected.map(Ok), "{}", value.escape_ascii());
    }
}

#[test]
fn b95_a_domain_and_a_key_of_any_bytes_select_no_limit() {
    let scene = Scene::new(LIMITS);
    for (domain, key) in [(&b"d"[..], &b"account\xff"[..]), (b"d\xff", b"account"), (b"\xff", b"")]
    {
        for _ in 0..5 {
            let decided = scene.decided(&request(domain, key, b"dave")).unwrap();
            assert!(is_ok(&decided.response) && decided.tallies.is_empty());
            assert_eq!(decided.is_domain_known, domain == b"d");
        }
    }
}

#[test]
fn b95_patterns_and_values_are_compared_by_bytes() {
    let scene = Scene::new(LIMITS);
    // The limit for the value `dave` does not apply to the value `dave\xff`.
    assert_eq!([0; 3].map(|_| passes(&scene, "named", b"dave\xff")), [true; 3]);
    // Each value that matches the pattern `dave*` has its own count.
    for value in [b"dave\xff", b"dave\xfe"] {
        assert_eq!([0; 2].map(|_| passes(&scene, "pattern", value)), [true, false]);
    }
    // With `share_threshold`, all values that match the pattern `dave*` share one count.
    assert!(passes(&scene, "shared", b"dave\xff"));
    assert!(!passes(&scene, "shared", b"dave\xfe"));
    assert!(!passes(&scene, "shared", b"dave"));
}

#[test]
fn b95_bytes_are_escaped_in_metrics_and_metadata() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let shown = metrics::with_local_recorder(&recorder, || {
        let mut behaviour = Behaviour::default();
        behaviour.has_metadata = true;
        let service = Service::new(Scene::with(LIMITS, behaviour).decider);
        let ask = |key: &str| {
            let request = request(b"d", key.as_bytes(), b"a\\b\xff\n");
            block_on(service.should_rate_limit(&request)).unwrap()
        };
        ask("detailed");
        let response = ask("metric");
        // A client can decode the response only if all its strings are UTF-8.
        assert_eq!(RateLimitResponse::decode(&*response.encode_to_vec()).unwrap(), response);
        let shown = serde_json::to_value(ShownResponse(&response)).unwrap();
        shown["dynamicMetadata"]["descriptors"][0]["entries"][0].clone()
    });
    assert_eq!(shown, "metric=a\\\\b\\xff\n");
    let text = handle.render();
    for key in ["detailed", "metric"] {
        let label = format!(r#"key1="{key}_a\\b\\xff\n""#);
        let is_counted = |line: &str| line.contains("total_hits") && line.contains(&label);
        assert!(text.lines().any(is_counted), "{label}: {text}");
    }
}

#[test]
fn b95_a_request_that_cannot_be_read_is_counted_and_reported() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let service = Arc::new(Service::new(Scene::new(LIMITS).decider));
        let readable = message(&request(b"d", b"account", b"dave"));
        // Three unreadable messages: one ends within a field, one has no bytes, and one is marked
        // as compressed but is not.
        let unreadable = [b"\0\0\0\0\x02\x0a\x09".to_vec(), Vec::new(), b"\x01\0\0\0\0".to_vec()];
        let answers = block_on(async {
            let first =
                answers(Arc::clone(&service), &[&[readable][..], &unreadable].concat()).await;
            let (send, receive) = tokio::sync::oneshot::channel();
            let send = std::cell::Cell::new(Some(send));
            let report = |unreadable| drop(send.take().map(|send| send.send(unreadable)));
            let report = tokio::select! {
                () = service.follow_unreadable(report) => unreachable!(),
                report = receive => report.unwrap(),
            };
            assert_eq!(
                (report.requests, report.peer.map(|peer| peer.ip().is_loopback())),
                (3, Some(true))
            );
            assert!(report.reason.contains("compressed-flag"), "{}", report.reason);
            first
        });
        assert_eq!(
            answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, false, false, false]
        );
    });
    let text = handle.render();
    for line in [
        "tidegate_server_grpc_unreadable_requests_total 3\n",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 4\n",
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 3\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}
