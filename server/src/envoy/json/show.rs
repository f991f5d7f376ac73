use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A response that serializes as proto3 JSON. Fields that are zero or empty are left out.
// A conversion of the response into a `serde_json::Value` would cost an allocation for each field.
#[derive(Debug, Clone, Copy)]
pub struct ShownResponse<'r>(pub &'r RateLimitResponse);

impl Serialize for ShownResponse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(response) = self;
        let statuses = List(&response.statuses, ShownStatus);
        let headers = List(&response.response_headers_to_add, ShownHeader);
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("overallCode", response.overall_code().as_str_name())?;
        fields.serialize_entry("statuses", &statuses)?;
        if !response.response_headers_to_add.is_empty() {
            fields.serialize_entry("responseHeadersToAdd", &headers)?;
        }
        if let Some(metadata) = &response.dynamic_metadata {
            fields.serialize_entry("dynamicMetadata", &ShownStruct(metadata))?;
        }
        fields.end()
    }
}

/// A list, and the function that returns the value to serialize for each element.
struct List<'r, T, V>(&'r [T], fn(&'r T) -> V);

impl<T, V: Serialize> Serialize for List<'_, T, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

struct ShownStatus<'r>(&'r DescriptorStatus);

impl Serialize for ShownStatus<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status) = self;
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("code", status.code().as_str_name())?;
        if let Some(limit) = &status.current_limit {
            fields.serialize_entry("currentLimit", &ShownLimit(limit))?;
        }
        if status.limit_remaining > 0 {
            fields.serialize_entry("limitRemaining", &status.limit_remaining)?;
        }
        if let Some(span) = &status.duration_until_reset {
            fields.serialize_entry("durationUntilReset", &format_args!("{}s", span.seconds))?;
        }
        fields.end()
    }
}

struct ShownLimit<'r>(&'r RateLimit);

impl Serialize for ShownLimit<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(limit) = self;
        let mut fields = serializer.serialize_map(None)?;
        if !limit.name.is_empty() {
            fields.serialize_entry("name", &limit.name)?;
        }
        if limit.requests_per_unit > 0 {
            fields.serialize_entry("requestsPerUnit", &limit.requests_per_unit)?;
        }
        if limit.unit > 0 {
            fields.serialize_entry("unit", limit.unit().as_str_name())?;
        }
        fields.end()
    }
}

struct ShownHeader<'r>(&'r HeaderValue);

impl Serialize for ShownHeader<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("key", &self.0.key), ("value", &self.0.value)])
    }
}

/// A protobuf `Struct` that serializes as the JSON object that it represents.
#[derive(Debug, Clone, Copy)]
pub struct ShownStruct<'r>(pub &'r Struct);

impl Serialize for ShownStruct<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The order of a `HashMap` is random, so the fields are sorted.
        let mut fields: Vec<_> = self.0.fields.iter().collect();
        fields.sort_unstable_by_key(|(key, _)| *key);
        serializer.collect_map(fields.into_iter().map(|(key, value)| (key, ShownValue(value))))
    }
}

struct ShownValue<'r>(&'r Value);

impl Serialize for ShownValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.kind {
            None | Some(Kind::NullValue(_)) => serializer.serialize_unit(),
            Some(Kind::BoolValue(value)) => serializer.serialize_bool(*value),
            Some(Kind::NumberValue(value)) => serializer.serialize_f64(*value),
            Some(Kind::StringValue(value)) => serializer.serialize_str(value),
            Some(Kind::StructValue(value)) => ShownStruct(value).serialize(serializer),
            Some(Kind::ListValue(list)) => List(&list.values, ShownValue).serialize(serializer),
        }
    }
}
