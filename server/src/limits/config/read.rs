//! Converts the tree of a file into the rules of its domain.

use std::rc::Rc;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::value::Kind as JsonKind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as JsonValue};
use tidegate_core::{Call, CallId, Charge, Operation, Policy, parse_duration};

use super::error::{Position, Problem, Source};
use super::keys::OWN_KEYS;
use super::limit::{Counted, Kind, Limit, PolicyLimit, Unit};
use super::rules::{Level, Rule};
use super::scalar::{Kind as ScalarKind, integer};
use super::yaml::{Map, Node, Scalar, Value, loading};
use crate::limits::StatKey;
use crate::net::text::shown;

/// The name of each policy whose text contains no name. The name is constant, because the keys of
/// states contain it: if only the limit in the text changes, the policy keeps its states.
const POLICY_NAME: &str = "policy";

/// The maximum total length in bytes of the paths to all descriptors of a file. A path, such as
/// `domain.key_value.key`, is the key of a descriptor in statistics.
const MAX_PATH_BYTES: usize = 16 << 20;

const IN_ROOT: &[&str] = &["domain", "descriptors"];
const IN_DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "policy",
    "charge_afterwards",
    "refunds",
    "lease",
    "hold_id",
    "one_of",
];
/// The keys of a limit that are in the descriptor next to a `policy:`, but inside a `rate_limit:`.
const BESIDE_POLICY: &[&str] = &["name", "replaces"];
const IN_RATE_LIMIT: &[&str] =
    &["requests_per_unit", "unit", "unlimited", "name", "replaces", "period", "calendar"];
const IN_REPLACES: &[&str] = &["name"];

/// Reads one file or resource.
pub(super) struct Reader<'s> {
    pub(super) source: Source<'s>,
    /// Warnings about keys that are allowed but have no effect.
    pub(super) warnings: Vec<Problem>,
    /// The total length of the paths to all descriptors.
    path_bytes: usize,
}

impl<'s> Reader<'s> {
    pub(super) fn new(source: Source<'s>) -> Self {
        Self { source, warnings: Vec::new(), path_bytes: 0 }
    }

    /// Returns the name of the file's domain, and the position of this name.
    pub(super) fn domain(&mut self, root: &Map) -> Result<(String, Position), Problem> {
        self.check_place(root, &[IN_ROOT])?;
        let at = root.get("domain").map_or(Position { line: 1, column: 1 }, |node| node.at);
        match text(root, "domain")? {
            "" => Err(Problem::new(at, "config file cannot have empty domain")),
            domain => Ok((domain.to_owned(), at)),
        }
    }

    /// Adds the descriptors under `map` to `level`. The keys of these descriptors in statistics
    /// begin with `path`.
    pub(super) fn descriptors(
        &mut self,
        map: &Map,
        path: &StatKey,
        level: &mut Level,
    ) -> Result<(), Problem> {
        for node in list(map, "descriptors")? {
            let Value::Map(map) = &*node.value else { continue };
            self.descriptor(map, node.at, path, level)?;
        }
        Ok(())
    }

    fn descriptor(
        &mut self,
        map: &Map,
        at: Position,
        path: &StatKey,
        level: &mut Level,
    ) -> Result<(), Problem> {
        let has_policy = map.get("policy").is_some_and(|node| !node.is_null());
        let more = if has_policy { BESIDE_POLICY } else { &[] };
        self.check_place(map, &[IN_DESCRIPTOR, more])?;

        let key = text(map, "key")?;
        if key.is_empty() {
            return Err(Problem::new(at_key(map, "key").unwrap_or(at), "descriptor has empty key"));
        }
        let value = text(map, "value")?;
        let composite = match value {
            "" => key.to_owned(),
            value => format!("{key}_{value}"),
        };
        let mut path = path.clone();
        path.push(key, value);
        if level.contains(key, value) {
            let message = format!("duplicate descriptor composite key '{}'", shown(path.name()));
            return Err(Problem::new(at_key(map, "key").unwrap_or(at), message));
        }

        // Each path contains the path of its parent, so all paths together can be much longer than
        // the file.
        self.path_bytes = self.path_bytes.saturating_add(path.name().len());
        if self.path_bytes > MAX_PATH_BYTES {
            let message = format!(
                "the paths to all descriptors, each with its domain, keys and values, have more than \
                 {MAX_PATH_BYTES} bytes"
            );
            return Err(loading(at, message));
        }

        let mut rule = Rule {
            limit: self.limit(map, at, &path)?.map(Arc::new),
            has_value_metric: boolean(map, "value_to_metric")?,
            shares_threshold: boolean(map, "share_threshold")?,
            next: Level::default(),
        };
        if rule.shares_threshold && !value.contains('*') {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found \
                 key '{}'",
                shown(&composite)
            );
            return Err(Problem::new(at_key(map, "share_threshold").unwrap_or(at), message));
        }
        self.descriptors(map, &path, &mut rule.next)?;
        level.insert(key, value, rule);
        Ok(())
    }

    fn limit(&mut self, map: &Map, at: Position, path: &StatKey) -> Result<Option<Limit>, Problem> {
        let metadata = metadata(map)?;
        let is_shadow = boolean(map, "shadow_mode")?;
        let is_quota = boolean(map, "quota_mode")?;
        let has_detailed_metric = boolean(map, "detailed_metric")?;
        let rate_limit = present(map, "rate_limit");
        let policy = present(map, "policy");
        if policy.is_none() {
            self.only_beside_policy(map)?;
        }
        let (mut kind, named, at) = match (rate_limit, policy) {
            (None, None) => {
                return match at_key(map, "lease") {
                    None => Ok(None),
                    Some(at) => {
                        let message = "'lease' is only possible with a 'rate_limit' or a 'policy'";
                        Err(Problem::new(at, message))
                    }
                };
            }
            (Some(_), Some(policy)) => {
                let message = "a descriptor has either 'rate_limit' or 'policy', not both";
                return Err(Problem::new(policy.at, message));
            }
            (Some(node), None) => {
                let Value::Map(limit) = &*node.value else {
                    return Err(loading(node.at, "'rate_limit' is not a map"));
                };
                (self.rate_limit(limit, node.at)?, limit, at)
            }
            (None, Some(node)) => (policy_limit(map, node, is_quota)?, map, node.at),
        };
        let lease = present(map, "lease").map(|_| boolean(map, "lease")).transpose()?;
        if lease == Some(true) || kind.is_leased() {
            kind.lease(is_quota).map_err(|reason| {
                let message = format!("the limit cannot be leased: {reason}");
                Problem::new(at_key(map, "lease").unwrap_or(at), message)
            })?;
        }
        let name = match kind.text() {
            Some(policy) if policy.name() != POLICY_NAME && text(named, "name")?.is_empty() => {
                policy.name()
            }
            _ => text(named, "name")?,
        };
        let replaces = self.replaces(named, name)?;
        Ok(Some(Limit {
            name: name.into(),
            is_shadow: is_shadow || kind.text().is_some_and(Policy::is_shadow),
            kind,
            replaces,
            is_quota,
            may_be_leased: lease != Some(false),
            has_detailed_metric,
            metadata,
            stat_key: path.clone().into(),
            place: self.source.place(at).into(),
        }))
    }

    fn rate_limit(&mut self, map: &Map, at: Position) -> Result<Kind, Problem> {
        self.check_place(map, &[IN_RATE_LIMIT])?;
        let requests_per_unit = number(map, "requests_per_unit")?;
        let name = text(map, "unit")?;
        let unit = Unit::from_name(name);
        let (period, calendar) = (present(map, "period"), present(map, "calendar"));
        if boolean(map, "unlimited")? {
            let given = period.or(calendar).or(map.get("unit").filter(|_| unit.is_some()));
            return match given {
                None => Ok(Kind::Unlimited),
                Some(node) => {
                    Err(Problem::new(node.at, "should not specify rate limit unit when unlimited"))
                }
            };
        }
        let at_unit = map.get("unit").map_or(at, |node| node.at);
        if let (Some(_), Some(node)) = (period, calendar) {
            let message = "a limit has either 'period' or 'calendar', not both";
            return Err(Problem::new(node.at, message));
        }
        if let (Some(unit), Some(node)) = (unit, calendar) {
            let counted = Counted::in_calendar(requests_per_unit, unit, text(map, "calendar")?);
            return counted
                .map(Kind::Counted)
                .map_err(|error| Problem::new(node.at, format!("invalid calendar: {error}")));
        }
        let window = match (unit, period) {
            (None, Some(node)) if name.is_empty() => parse_duration(text(map, "period")?)
                .map_err(|error| Problem::new(node.at, format!("invalid period: {error}")))?,
            (_, Some(node)) => {
                let message = "a limit has either 'unit' or 'period', not both";
                return Err(Problem::new(node.at, message));
            }
            (Some(unit), None) => unit.span(),
            (None, None) if calendar.is_some() && name.is_empty() => {
                let message = "'calendar' needs a unit: day, week, month or year";
                return Err(Problem::new(at_unit, message));
            }
            (None, None) => {
                let message = format!("invalid rate limit unit '{}'", shown(name));
                return Err(Problem::new(at_unit, message));
            }
        };
        let counted = Counted::new(requests_per_unit, window)
            .map_err(|error| Problem::new(at_unit, error.to_string()))?;
        Ok(Kind::Counted(counted))
    }

    fn replaces(&mut self, map: &Map, own_name: &str) -> Result<Box<[Box<str>]>, Problem> {
        let mut names = Vec::new();
        for node in list(map, "replaces")? {
            let Value::Map(entry) = &*node.value else { continue };
            self.check_place(entry, &[IN_REPLACES])?;
            let name = text(entry, "name")?;
            if name.is_empty() {
                return Err(Problem::new(node.at, "should not have an empty replaces entry"));
            }
            if name == own_name {
                let message = "replaces should not contain name of same descriptor";
                return Err(Problem::new(node.at, message));
            }
            names.push(name.into());
        }
        Ok(names.into())
    }

    fn only_beside_policy(&self, map: &Map) -> Result<(), Problem> {
        for key in ["charge_afterwards", "refunds", "hold_id", "one_of"] {
            if let Some(at) = at_key(map, key) {
                let message = format!("'{key}' is only possible with a 'policy'");
                return Err(Problem::new(at, message));
            }
        }
        Ok(())
    }

    /// Checks that each key of `map` is in `known` and therefore has an effect. A misplaced key of
    /// Tidegate is an error. A misplaced key of envoyproxy/ratelimit is only a warning, because
    /// envoyproxy/ratelimit ignores it.
    fn check_place(&mut self, map: &Map, known: &[&[&str]]) -> Result<(), Problem> {
        for (key, _) in &map.entries {
            let name = &*key.scalar.text;
            if known.iter().any(|known| known.contains(&name)) {
                continue;
            }
            let problem = Problem::new(key.at, format!("the key '{name}' has no effect here"));
            if OWN_KEYS.contains(&name) {
                return Err(problem);
            }
            self.warnings.push(problem);
        }
        for key in &map.duplicates {
            let name = shown(&key.scalar.text);
            let message = format!(
                "the key '{name}' occurs again in this map, and only its last value has an effect"
            );
            self.warnings.push(Problem::new(key.at, message));
        }
        Ok(())
    }
}

fn policy_limit(map: &Map, node: &Node, is_quota: bool) -> Result<Kind, Problem> {
    let Value::Scalar(scalar) = &*node.value else {
        return Err(loading(node.at, "'policy' is not a text"));
    };
    if is_quota {
        let message = "'quota_mode' cannot be combined with 'policy': the policies of a request are charged \
                       together or not at all, but a request can pass although a quota is exceeded";
        return Err(Problem::new(at_key(map, "quota_mode").unwrap_or(node.at), message));
    }
    let invalid = |error: tidegate_core::PolicyError| {
        let mut at = node.at;
        if let (Some(span), Some(offset)) = (error.span(), scalar.offset) {
            let before = scalar.text.get(..span.start).unwrap_or_default();
            at.column += offset + before.chars().count();
        }
        Problem::new(at, format!("invalid policy: {error}"))
    };
    let mut policy: Policy = scalar.text.parse().map_err(invalid)?;
    if !policy.is_named() && policy.is_fair_pool() {
        let message = format!(
            "invalid policy: a fair pool needs a name, as in `pool: {policy}`, because all pools with one name and \
             one window are one pool"
        );
        return Err(Problem::new(node.at, message));
    }
    if !policy.is_named() {
        policy = format!("{POLICY_NAME}: {}", scalar.text).parse().map_err(invalid)?;
    }
    if boolean(map, "shadow_mode")? {
        policy = policy.shadow();
    }
    if policy.is_concurrent() {
        check_slots(map, node)?;
        let id = CallId::new("id", policy.window());
        let charge = Charge::new(&policy, "subject");
        check_call(node, Call::new(Operation::Hold, &[charge]).with_id(id))?;
        return Ok(Kind::Slots(policy));
    }
    if let Some(at) = at_key(map, "hold_id") {
        let message = "'hold_id' is only possible with a policy of slots (`concurrent`)";
        return Err(Problem::new(at, message));
    }
    let mut limit = PolicyLimit::new(policy);
    limit.charges_afterwards = boolean(map, "charge_afterwards")?;
    if limit.charges_afterwards && limit.policy.is_fair_pool() {
        let message = "'charge_afterwards' cannot be combined with a fair pool: the shares follow from the hits that \
                       requests ask for";
        return Err(Problem::new(at_key(map, "charge_afterwards").unwrap_or(node.at), message));
    }
    if boolean(map, "refunds")? {
        limit = limit.with_refunds().map_err(invalid)?;
    }
    limit.one_of = one_of(map, &limit)?;
    Ok(Kind::Policy(limit))
}

/// Returns the name of the list of alternatives to which the limit belongs.
fn one_of(map: &Map, limit: &PolicyLimit) -> Result<Option<Box<str>>, Problem> {
    let Some(node) = present(map, "one_of") else { return Ok(None) };
    let name = text(map, "one_of")?;
    let problem = match &limit.policy {
        _ if name.is_empty() => "'one_of' is empty; it must be the name of a list of alternatives",
        policy if policy.block().is_some() => {
            "'one_of' cannot be combined with `block`: a policy that blocks cannot be an alternative"
        }
        policy if policy.is_shadow() => {
            "'one_of' cannot be combined with a shadow, which never refuses"
        }
        _ if limit.charges_afterwards => {
            "'one_of' cannot be combined with 'charge_afterwards': hits that have happened are charged \
             to every limit"
        }
        policy => {
            let charge = Charge::new(policy, "subject").in_list(1);
            check_call(node, Call::acquire(&[charge]))?;
            return Ok(Some(name.into()));
        }
    };
    Err(Problem::new(node.at, problem))
}

/// Checks that a store can decide the calls for a limit, so that no request is an error.
fn check_call(node: &Node, call: Call<'_>) -> Result<(), Problem> {
    call.check().map_err(|error| Problem::new(node.at, format!("invalid policy: {error}")))
}

/// Checks the keys next to a policy of slots.
fn check_slots(map: &Map, policy: &Node) -> Result<(), Problem> {
    if !boolean(map, "hold_id")? {
        let message = "invalid policy: a request takes slots (`concurrent`) under an id; they need `hold_id: true`, \
                       and a descriptor whose value is the id, such as `x-request-id`";
        return Err(Problem::new(at_key(map, "hold_id").unwrap_or(policy.at), message));
    }
    if !text(map, "value")?.is_empty() {
        let message = "'hold_id' cannot be combined with 'value': each request has its own id";
        return Err(Problem::new(at_key(map, "value").unwrap_or(policy.at), message));
    }
    if let Some(at) = at_key(map, "one_of") {
        let message = "'one_of' cannot be combined with slots (`concurrent`)";
        return Err(Problem::new(at, message));
    }
    for (key, reason) in [
        ("charge_afterwards", "a request takes its slots before it begins"),
        ("refunds", "the end of a request frees its slots"),
        ("detailed_metric", "each id would have its own statistics"),
        ("value_to_metric", "each id would have its own statistics"),
    ] {
        if boolean(map, key)? {
            let message = format!("'{key}' cannot be combined with slots (`concurrent`): {reason}");
            return Err(Problem::new(at_key(map, key).unwrap_or(policy.at), message));
        }
    }
    Ok(())
}

/// Returns the value of a key, or `None` if the key is missing or its value is null.
fn present<'m>(map: &'m Map, key: &str) -> Option<&'m Rc<Node>> {
    map.get(key).filter(|node| !node.is_null())
}

/// Returns the position of a key's value.
fn at_key(map: &Map, key: &str) -> Option<Position> {
    map.get(key).map(|node| node.at)
}

/// Returns the text of a key, or an empty text if the key is missing. A number is returned as it
/// was written.
fn text<'m>(map: &'m Map, key: &str) -> Result<&'m str, Problem> {
    match present(map, key) {
        None => Ok(""),
        Some(node) => match &*node.value {
            Value::Scalar(scalar) => Ok(&scalar.text),
            Value::List(_) | Value::Map(_) => {
                Err(loading(node.at, format!("'{key}' is not a text")))
            }
        },
    }
}

fn boolean(map: &Map, key: &str) -> Result<bool, Problem> {
    match present(map, key) {
        None => Ok(false),
        Some(node) => match &*node.value {
            Value::Scalar(Scalar { kind: ScalarKind::Bool(value), .. }) => Ok(*value),
            _ => Err(loading(node.at, format!("'{key}' is neither true nor false"))),
        },
    }
}

fn number(map: &Map, key: &str) -> Result<u32, Problem> {
    let Some(node) = present(map, key) else { return Ok(0) };
    let number = match &*node.value {
        Value::Scalar(scalar) if scalar.kind == ScalarKind::Integer => integer(&scalar.text),
        _ => None,
    };
    number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
        loading(node.at, format!("'{key}' is not a whole number from 0 to {}", u32::MAX))
    })
}

fn list<'m>(map: &'m Map, key: &str) -> Result<&'m [Rc<Node>], Problem> {
    match present(map, key) {
        None => Ok(&[]),
        Some(node) => match &*node.value {
            Value::List(nodes) => Ok(nodes),
            Value::Scalar(_) | Value::Map(_) => {
                Err(loading(node.at, format!("'{key}' is not a list")))
            }
        },
    }
}

fn metadata(map: &Map) -> Result<Option<Struct>, Problem> {
    let Some(node) = present(map, "metadata") else { return Ok(None) };
    match &*node.value {
        Value::Map(map) if map.entries.is_empty() => Ok(None),
        Value::Map(map) => Ok(Some(json_struct(map))),
        Value::Scalar(_) | Value::List(_) => Err(loading(node.at, "'metadata' is not a map")),
    }
}

fn json_struct(map: &Map) -> Struct {
    let entry =
        |(key, node): &(super::yaml::Key, Rc<Node>)| (key.scalar.text.to_string(), json(node));
    Struct { fields: map.entries.iter().map(entry).collect() }
}

fn json(node: &Node) -> JsonValue {
    let kind = match &*node.value {
        Value::Map(map) => JsonKind::StructValue(json_struct(map)),
        Value::List(nodes) => {
            JsonKind::ListValue(ListValue { values: nodes.iter().map(|node| json(node)).collect() })
        }
        Value::Scalar(scalar) => match scalar.kind {
            ScalarKind::Null => JsonKind::NullValue(0),
            ScalarKind::Bool(value) => JsonKind::BoolValue(value),
            ScalarKind::Text => JsonKind::StringValue(scalar.text.to_string()),
            ScalarKind::Integer | ScalarKind::Float => {
                let plain = scalar.text.replace('_', "");
                let decimal = integer(&scalar.text).map_or(plain, |number| number.to_string());
                match decimal.parse() {
                    Ok(number) => JsonKind::NumberValue(number),
                    Err(_) => JsonKind::StringValue(scalar.text.to_string()),
                }
            }
        },
    };
    JsonValue { kind: Some(kind) }
}
