//! Creates the dynamic metadata of a response. With this metadata, Envoy can choose a backend whose
//! limit is not exceeded.

use std::collections::HashMap;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};

use super::plan::{Planned, Target};
use crate::envoy::request::{RateLimitDescriptor, RateLimitRequest};
use crate::limits::config::Unit;
use crate::net::text::push_text;

/// Returns the contents of the request, the merged `metadata` of the limits that the request does
/// not exceed, and the names of the limits that warn.
pub(super) fn metadata(
    request: &RateLimitRequest,
    planned: &[Planned],
    statuses: &[DescriptorStatus],
    warnings: &[&str],
) -> Struct {
    let mut fields = HashMap::new();
    fields.insert("domain".to_owned(), text([&*request.domain]));
    let descriptors = request.descriptors.iter().map(descriptor).collect();
    fields.insert("descriptors".to_owned(), list(descriptors));
    if request.hits_addend > 0 {
        fields.insert("hitsAddend".to_owned(), number(request.hits_addend.into()));
    }
    let mut merged = Struct::default();
    for (planned, status) in planned.iter().zip(statuses) {
        if let Target::Limited(limited) = &planned.target
            && status.code != i32::from(Code::OverLimit)
            && let Some(metadata) = &limited.limit.metadata
        {
            merge(&mut merged, metadata);
        }
    }
    if !merged.fields.is_empty() {
        fields.insert("metadata".to_owned(), value(Kind::StructValue(merged)));
    }
    if !warnings.is_empty() {
        let names = warnings.iter().map(|name| text([name.as_bytes()])).collect();
        fields.insert("warnings".to_owned(), list(names));
    }
    Struct { fields }
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let mut fields = HashMap::new();
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| text([&*entry.key, b"=", &*entry.value])).collect();
    fields.insert("entries".to_owned(), list(entries));
    if let Some(limit) = &descriptor.limit {
        let unit = Unit::from_number(limit.unit)
            .map_or("UNKNOWN".to_owned(), |unit| format!("{unit:?}").to_uppercase());
        let limit = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        fields.insert("limit".to_owned(), text([limit.as_bytes()]));
    }
    if let Some(hits) = &descriptor.hits_addend {
        fields.insert("hitsAddend".to_owned(), number(hits.value));
    }
    value(Kind::StructValue(Struct { fields }))
}

/// Adds the fields of `from` that `into` does not contain. If both contain a struct under the same
/// key, the function merges the two structs in the same way.
fn merge(into: &mut Struct, from: &Struct) {
    for (key, new) in &from.fields {
        match into.fields.get_mut(key).map(|value| &mut value.kind) {
            None => {
                into.fields.insert(key.clone(), new.clone());
            }
            Some(Some(Kind::StructValue(old))) => {
                if let Some(Kind::StructValue(new)) = &new.kind {
                    merge(old, new);
                }
            }
            Some(_) => {}
        }
    }
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

/// Joins `parts` into one text. A protobuf `Struct` can contain only UTF-8, so other bytes are
/// escaped.
fn text<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Value {
    let mut text = String::new();
    parts.into_iter().for_each(|part| push_text(&mut text, part));
    value(Kind::StringValue(text))
}

fn list(values: Vec<Value>) -> Value {
    value(Kind::ListValue(ListValue { values }))
}

/// Converts a number. JSON readers use floating-point numbers, so numbers above 2^53 are rounded.
#[expect(clippy::cast_precision_loss, reason = "what the protocol can say")]
fn number(number: u64) -> Value {
    value(Kind::NumberValue(number as f64))
}
