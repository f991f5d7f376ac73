use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value as ProtoValue};
use serde_json::{Map, Value, json};

/// Returns a response as proto3 JSON. Fields that are zero or empty are left out.
#[must_use]
pub fn show_response(response: &RateLimitResponse) -> Value {
    let mut fields = Map::new();
    fields.insert("overallCode".to_owned(), json!(response.overall_code().as_str_name()));
    fields.insert("statuses".to_owned(), response.statuses.iter().map(status).collect());
    if !response.response_headers_to_add.is_empty() {
        let headers = response.response_headers_to_add.iter();
        let headers = headers.map(|header| json!({"key": header.key, "value": header.value}));
        fields.insert("responseHeadersToAdd".to_owned(), headers.collect());
    }
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamicMetadata".to_owned(), show_struct(metadata));
    }
    Value::Object(fields)
}

fn status(status: &DescriptorStatus) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), json!(status.code().as_str_name()));
    if let Some(limit) = &status.current_limit {
        fields.insert("currentLimit".to_owned(), current_limit(limit));
    }
    if status.limit_remaining > 0 {
        fields.insert("limitRemaining".to_owned(), json!(status.limit_remaining));
    }
    if let Some(span) = &status.duration_until_reset {
        fields.insert("durationUntilReset".to_owned(), json!(format!("{}s", span.seconds)));
    }
    Value::Object(fields)
}

fn current_limit(limit: &RateLimit) -> Value {
    let mut fields = Map::new();
    if !limit.name.is_empty() {
        fields.insert("name".to_owned(), json!(limit.name));
    }
    if limit.requests_per_unit > 0 {
        fields.insert("requestsPerUnit".to_owned(), json!(limit.requests_per_unit));
    }
    if limit.unit > 0 {
        fields.insert("unit".to_owned(), json!(limit.unit().as_str_name()));
    }
    Value::Object(fields)
}

/// Returns a protobuf `Struct` as the JSON object that it represents.
#[must_use]
pub fn show_struct(value: &Struct) -> Value {
    let field = |(key, value): (&String, &ProtoValue)| (key.clone(), show_value(value));
    Value::Object(value.fields.iter().map(field).collect())
}

fn show_value(value: &ProtoValue) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::NumberValue(value)) => json!(value),
        Some(Kind::StringValue(value)) => json!(value),
        Some(Kind::StructValue(value)) => show_struct(value),
        Some(Kind::ListValue(list)) => list.values.iter().map(show_value).collect(),
    }
}
