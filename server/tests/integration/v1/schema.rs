//! Checks answers against the schemas of the OpenAPI document. Only the keywords of JSON Schema
//! that the document uses are supported.

use serde_json::{Map, Value};

use super::document;
use crate::http::client::Answer;

/// Checks that the OpenAPI document describes this answer of a route.
pub(crate) fn check(path: &str, method: &str, answer: &Answer) {
    let document = document();
    let responses = &document["paths"][path][method]["responses"];
    let response = resolve(&document, &responses[answer.status.to_string()]);
    assert!(response.is_object(), "{method} {path}: {} is not described", answer.status);
    for (name, _) in response["headers"].as_object().into_iter().flatten() {
        // `Retry-After` is missing in an answer if waiting does not help.
        let is_optional = name == "Retry-After" || answer.body.contains("failed-");
        let given = answer.field(&name.to_ascii_lowercase());
        assert!(given.is_some() || is_optional, "{path}: {name} is missing");
    }
    let given = answer.field("content-type").unwrap_or_default().split(';').next().unwrap();
    let content = &response["content"][given];
    assert!(content.is_object(), "{path}: {} as {given} is not described", answer.status);
    if given == "application/json" {
        let schema = &content["schema"];
        if let Err(why) = validate(&document, schema, &answer.json(), "") {
            panic!("{path}: {why}\n{}", answer.body);
        }
    }
}

/// Returns the part of the OpenAPI document to which a `$ref` refers, or the value itself if it has
/// no `$ref`.
pub(crate) fn resolve<'v>(document: &'v Value, value: &'v Value) -> &'v Value {
    match value["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => value,
    }
}

/// Checks that a value matches a JSON schema. Ignores all keywords that this function does not
/// name.
pub(crate) fn validate(
    document: &Value,
    schema: &Value,
    value: &Value,
    place: &str,
) -> Result<(), String> {
    let schema = resolve(document, schema);
    let fail = |what: &str| Err(format!("{place} is {value}: {what}"));
    let all = |name: &str| schema[name].as_array().into_iter().flatten();
    let is_valid = |schema: &Value| validate(document, schema, value, place).is_ok();
    let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        types => types.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
    };
    if !types.is_empty() && !types.contains(&type_of(value)) {
        return fail(&format!("not a {types:?}"));
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return fail("not one of the values");
    }
    if all("oneOf").count() > 0
        && all("oneOf").filter(|alternative| is_valid(alternative)).count() != 1
    {
        return fail("not one of the alternatives");
    }
    if all("anyOf").count() > 0 && !all("anyOf").any(is_valid) {
        return fail("none of the alternatives");
    }
    if schema["not"].is_object() && is_valid(&schema["not"]) {
        return fail("excluded");
    }
    if let Some(missing) = all("required").find(|name| !has(name)) {
        return fail(&format!("{missing} is missing"));
    }
    for (name, needed) in schema["dependentRequired"].as_object().into_iter().flatten() {
        if value.get(name).is_some() && !needed.as_array().unwrap().iter().all(has) {
            return fail(&format!("{name} needs {needed}"));
        }
    }
    if let Some(number) = value.as_u64() {
        let bound = |name: &str, default| schema[name].as_u64().unwrap_or(default);
        if !(bound("minimum", 0)..=bound("maximum", u64::MAX)).contains(&number) {
            return fail("out of its bounds");
        }
    }
    let empty = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&empty);
    for (name, value) in value.as_object().unwrap_or(&empty) {
        match known.get(name) {
            Some(schema) => validate(document, schema, value, &format!("{place}.{name}"))?,
            None if schema["additionalProperties"] == false => {
                return fail(&format!("{name} is not described"));
            }
            None => {}
        }
    }
    for value in value.as_array().into_iter().flatten() {
        validate(document, &schema["items"], value, &format!("{place}[]"))?;
    }
    Ok(())
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
