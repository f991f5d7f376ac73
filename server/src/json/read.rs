use std::error::Error;
use std::fmt;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::{Map, Value};

/// Why a text is not a request in proto3 JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError(String);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for JsonError {}

/// Reads a request in proto3 JSON: names in either style, numbers also as texts, `null` for what is absent.
///
/// ```
/// use tidegate_server::json::read_request;
///
/// let request = read_request(br#"{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}"#)?;
/// assert_eq!((&*request.domain, &*request.descriptors[0].entries[0].key), ("d", "k"));
/// assert!(read_request(br#"{"domian": "d"}"#).is_err());
/// # Ok::<(), tidegate_server::json::JsonError>(())
/// ```
///
/// # Errors
///
/// If it is not JSON, has a field that is not of the protocol, or a value of another type.
pub fn read_request(bytes: &[u8]) -> Result<RateLimitRequest, JsonError> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| JsonError(error.to_string()))?;
    let mut request = RateLimitRequest::default();
    for (name, value) in object("the request", &value)? {
        match name.as_str() {
            "domain" => request.domain = text(name, value)?,
            "descriptors" => request.descriptors = list(name, value, descriptor)?,
            "hitsAddend" | "hits_addend" => request.hits_addend = small_number(name, value)?,
            _ => return Err(unknown(name)),
        }
    }
    Ok(request)
}

fn descriptor(value: &Value) -> Result<RateLimitDescriptor, JsonError> {
    let mut descriptor = RateLimitDescriptor::default();
    for (name, value) in object("a descriptor", value)? {
        match name.as_str() {
            "entries" => descriptor.entries = list(name, value, entry)?,
            "limit" => descriptor.limit = Some(limit(value)?),
            "hitsAddend" | "hits_addend" => {
                descriptor.hits_addend = Some(UInt64Value { value: number(name, value)? });
            }
            "isNegativeHits" | "is_negative_hits" => {
                let is_negative = value.as_bool();
                descriptor.is_negative_hits =
                    is_negative.ok_or_else(|| wrong(name, value, "true or false"))?;
            }
            _ => return Err(unknown(name)),
        }
    }
    Ok(descriptor)
}

fn entry(value: &Value) -> Result<Entry, JsonError> {
    let mut entry = Entry::default();
    for (name, value) in object("an entry", value)? {
        match name.as_str() {
            "key" => entry.key = text(name, value)?,
            "value" => entry.value = text(name, value)?,
            _ => return Err(unknown(name)),
        }
    }
    Ok(entry)
}

fn limit(value: &Value) -> Result<RateLimitOverride, JsonError> {
    let mut limit = RateLimitOverride::default();
    for (name, value) in object("a limit", value)? {
        match name.as_str() {
            "requestsPerUnit" | "requests_per_unit" => {
                limit.requests_per_unit = small_number(name, value)?;
            }
            "unit" => limit.unit = unit(name, value)?,
            _ => return Err(unknown(name)),
        }
    }
    Ok(limit)
}

fn unit(name: &str, value: &Value) -> Result<i32, JsonError> {
    let by_name = |text: &str| RateLimitUnit::from_str_name(text).map(i32::from);
    let by_number = || value.as_i64().and_then(|number| i32::try_from(number).ok());
    let unit = value.as_str().map_or_else(by_number, by_name);
    unit.ok_or_else(|| wrong(name, value, "a unit, such as MINUTE"))
}

/// The fields that are not null.
fn object<'v>(
    what: &str,
    value: &'v Value,
) -> Result<impl Iterator<Item = (&'v String, &'v Value)> + use<'v>, JsonError> {
    let fields: &Map<String, Value> =
        value.as_object().ok_or_else(|| wrong(what, value, "an object"))?;
    Ok(fields.iter().filter(|(_, value)| !value.is_null()))
}

fn list<T>(
    name: &str,
    value: &Value,
    read: impl Fn(&Value) -> Result<T, JsonError>,
) -> Result<Vec<T>, JsonError> {
    let values = value.as_array().ok_or_else(|| wrong(name, value, "a list"))?;
    values.iter().map(read).collect()
}

fn text(name: &str, value: &Value) -> Result<String, JsonError> {
    let text = value.as_str().ok_or_else(|| wrong(name, value, "a text"))?;
    Ok(text.to_owned())
}

fn number(name: &str, value: &Value) -> Result<u64, JsonError> {
    let by_text = |text: &str| text.parse().ok();
    let number = value.as_str().map_or_else(|| value.as_u64(), by_text);
    number.ok_or_else(|| wrong(name, value, "a whole number of at least 0"))
}

fn small_number(name: &str, value: &Value) -> Result<u32, JsonError> {
    let number = number(name, value)?;
    u32::try_from(number).map_err(|_| wrong(name, value, "at most 4294967295"))
}

fn wrong(name: &str, value: &Value, expected: &str) -> JsonError {
    let shown: String = value.to_string().chars().take(40).collect();
    JsonError(format!("{name} is {shown}; it must be {expected}"))
}

fn unknown(name: &str) -> JsonError {
    let shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    JsonError(format!("unknown field \"{shown}\""))
}
