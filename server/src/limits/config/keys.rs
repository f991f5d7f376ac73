//! Checks all keys of a file before any value is read. envoyproxy/ratelimit does the same, so that
//! both programs report the same error first.

use super::error::Problem;
use super::scalar::Kind;
use super::yaml::{Map, Node, Value};
use crate::net::text::shown;

/// The keys that are allowed anywhere in a file of envoyproxy/ratelimit.
const KEYS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// The keys that Tidegate adds to the format of envoyproxy/ratelimit.
pub(super) const OWN_KEYS: [&str; 8] =
    ["policy", "period", "calendar", "charge_afterwards", "refunds", "lease", "hold_id", "one_of"];

pub(super) fn check(map: &Map) -> Result<(), Problem> {
    for (key, node) in &map.entries {
        let name = &*key.scalar.text;
        if key.scalar.kind != Kind::Text {
            let message = format!("config error, key is not of type string: {}", shown(name));
            return Err(Problem::new(key.at, message));
        }
        if !KEYS.contains(&name) && !OWN_KEYS.contains(&name) {
            let message = format!("config error, unknown key '{}'", shown(name));
            return Err(Problem::new(key.at, message));
        }
        // The keys in `metadata` are not checked, because the user chooses them.
        if name != "metadata" {
            check_value(node)?;
        }
    }
    Ok(())
}

fn check_value(node: &Node) -> Result<(), Problem> {
    match &*node.value {
        Value::Map(map) => check(map),
        Value::List(nodes) => nodes.iter().try_for_each(|node| match &*node.value {
            Value::Map(map) => check(map),
            Value::Scalar(scalar) => {
                let what = if node.is_null() { "<nil>" } else { &scalar.text };
                Err(not_a_map(node, &shown(what)))
            }
            Value::List(_) => Err(not_a_map(node, "a list")),
        }),
        Value::Scalar(scalar) if scalar.kind == Kind::Float => {
            Err(Problem::new(node.at, format!("error checking config: {}", shown(&scalar.text))))
        }
        Value::Scalar(_) => Ok(()),
    }
}

fn not_a_map(node: &Node, what: &str) -> Problem {
    let message = format!("config error, yaml file contains list of type other than map: {what}");
    Problem::new(node.at, message)
}
