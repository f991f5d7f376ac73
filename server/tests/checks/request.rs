//! Checks that the server handles any message as a request of Envoy.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use prost::Message;
use serde_json::{Map, Value, json};
use tidegate_server::envoy::json::{ShownResponse, read_request};
use tidegate_server::envoy::request::{Entry, RateLimitDescriptor, RateLimitRequest};

use super::{in_virtual_time, service};

/// Checks that the service answers a request with one status per descriptor, or refuses it with a
/// reason, and that the server reads the same request from JSON.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(request) = RateLimitRequest::decode(bytes) else { return };
    let service = service();
    for _ in 0..2 {
        match in_virtual_time(service.should_rate_limit(&request)) {
            Ok(response) => {
                assert_eq!(response.statuses.len(), request.descriptors.len());
                let is_over =
                    response.statuses.iter().any(|status| status.code() == Code::OverLimit);
                let overall = response.overall_code();
                assert!(overall == Code::Ok || (overall == Code::OverLimit && is_over));
                assert!(response.statuses.iter().all(|status| status.code() != Code::Unknown));
                let shown = serde_json::to_string(&ShownResponse(&response)).unwrap();
                assert!(serde_json::from_str::<Value>(&shown).unwrap().is_object());
            }
            Err(error) => {
                let message = error.to_string();
                assert!(!message.is_empty() && message.len() < 1_000, "{message}");
            }
        }
    }
    // JSON cannot contain texts that are not UTF-8.
    let texts = request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let mut texts = texts.flat_map(|entry| [&entry.key, &entry.value]).chain([&request.domain]);
    if texts.all(|text| str::from_utf8(text).is_ok()) {
        let json = show(&request).to_string();
        assert_eq!(read_request(json.as_bytes()).as_ref(), Ok(&request), "{json}");
    }
}

fn show(request: &RateLimitRequest) -> Value {
    json!({
        "domain": text(&request.domain),
        "descriptors": request.descriptors.iter().map(descriptor).collect::<Vec<_>>(),
        "hitsAddend": request.hits_addend,
    })
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entry = |entry: &Entry| json!({"key": text(&entry.key), "value": text(&entry.value)});
    let mut fields = Map::new();
    fields.insert("entries".into(), descriptor.entries.iter().map(entry).collect());
    if let Some(limit) = &descriptor.limit {
        let limit = json!({"requestsPerUnit": limit.requests_per_unit, "unit": limit.unit});
        fields.insert("limit".into(), limit);
    }
    if let Some(hits) = &descriptor.hits_addend {
        // proto3 JSON writes 64-bit numbers as texts.
        fields.insert("hitsAddend".into(), json!(hits.value.to_string()));
    }
    fields.insert("isNegativeHits".into(), json!(descriptor.is_negative_hits));
    Value::Object(fields)
}
