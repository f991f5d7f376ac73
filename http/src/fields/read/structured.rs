//! Reads the structured fields: `RateLimit` of drafts 07 to 11, and `RateLimit-Policy` of all
//! drafts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parser};

use super::moment::moment_of_number;
use super::{MAX_FIELD, MAX_LIMITS, ServerLimit};
use crate::fields::names::{RATELIMIT, RATELIMIT_POLICY};

/// Reads `RateLimit-Policy`. Returns each policy as a limit without a remaining amount and a reset.
/// Policies of drafts before 08 have no names.
pub(super) fn policies(headers: &HeaderMap) -> Vec<ServerLimit> {
    let Some(list) = parse::<List>(headers, &RATELIMIT_POLICY) else { return Vec::new() };
    let named = each(&list, |item| {
        let name = string(&item.bare_item)?;
        let unit = optional(item, "qu", string)?;
        let partition_key = optional(item, "pk", BareItem::as_byte_sequence)?;
        Some(ServerLimit {
            name: Some(name.into()),
            partition_key: partition_key.map(Into::into),
            unit: unit.filter(|&unit| unit != "requests").map(Into::into),
            limit: Some(required(item, "q", natural)?),
            window: optional(item, "w", window)?,
            ..ServerLimit::default()
        })
    });
    named.or_else(|| each(&list, policy_of_number)).unwrap_or_default()
}

/// Reads a policy of drafts before 08, which requires a window: `100;w=60`.
pub(super) fn policy_of_number(item: &Item) -> Option<ServerLimit> {
    numbered_limit(item).filter(|policy| policy.window.is_some())
}

/// Reads a limit that may have a window: `100`, `100;w=60`. Envoy adds `;name="burst"` if the
/// policy has a name.
pub(super) fn numbered_limit(item: &Item) -> Option<ServerLimit> {
    // The drafts of the field do not define the parameter `name`. So a value that is not a string
    // is ignored, like an unknown parameter.
    let name = item.params.get("name").and_then(string).filter(|name| !name.is_empty());
    Some(ServerLimit {
        name: name.map(Into::into),
        limit: Some(natural(&item.bare_item)?),
        window: optional(item, "w", window)?,
        ..ServerLimit::default()
    })
}

/// Reads `RateLimit`. Returns each limit, merged with its policy, and then the policies of
/// `RateLimit-Policy` that `RateLimit` does not mention.
pub(super) fn limits(
    headers: &HeaderMap,
    policies: &[ServerLimit],
    now: SystemTime,
) -> Option<Vec<ServerLimit>> {
    let value = joined(headers, &RATELIMIT)?;
    let limits = named_limits(&value, now).map(|limits| with_named_policies(limits, policies));
    limits.or_else(|| {
        let limit = draft_07(&value, now)?;
        Some(with_numbered_policies(limit, &[], policies))
    })
}

/// Reads the syntax of drafts 08 to 11: `"burst";r=50;t=30`.
fn named_limits(value: &[u8], now: SystemTime) -> Option<Vec<ServerLimit>> {
    let list = Parser::new(value).parse::<List>().ok()?;
    let limits = each(&list, |item| {
        let name = string(&item.bare_item)?;
        let reset = optional(item, "t", natural)?;
        let partition_key = optional(item, "pk", BareItem::as_byte_sequence)?;
        Some(ServerLimit {
            name: Some(name.into()),
            partition_key: partition_key.map(Into::into),
            remaining: Some(required(item, "r", natural)?),
            resets_at: reset.map(|reset| moment_of_number(reset, now)),
            ..ServerLimit::default()
        })
    });
    limits.filter(|limits| !limits.is_empty())
}

/// Reads the syntax of draft 07: `limit=100, remaining=50, reset=5`.
fn draft_07(value: &[u8], now: SystemTime) -> Option<ServerLimit> {
    let dictionary = Parser::new(value).parse::<Dictionary>().ok()?;
    let number = |key: &str| match dictionary.get(key) {
        None => Some(None),
        Some(ListEntry::Item(item)) => natural(&item.bare_item).map(Some),
        Some(ListEntry::InnerList(_)) => None,
    };
    let (limit, reset) = (number("limit")??, number("reset")??);
    Some(ServerLimit {
        limit: Some(limit),
        remaining: number("remaining")?,
        resets_at: Some(moment_of_number(reset, now)),
        ..ServerLimit::default()
    })
}

fn with_named_policies(mut limits: Vec<ServerLimit>, policies: &[ServerLimit]) -> Vec<ServerLimit> {
    let names = PolicyNames::new(policies);
    let mut is_used = vec![false; policies.len()];
    for limit in &mut limits {
        let Some(place) = names.policy_of(limit) else { continue };
        is_used[place] = true;
        let policy = policies[place].clone();
        let ServerLimit { remaining, resets_at, .. } = *limit;
        let partition_key = limit.partition_key.take().or(policy.partition_key);
        *limit = ServerLimit { remaining, resets_at, partition_key, ..policy };
    }
    let is_left =
        |policy: &&ServerLimit| !names.policy_of(policy).is_some_and(|place| is_used[place]);
    limits.extend(policies.iter().filter(is_left).cloned());
    limits
}

/// The indices of policies by their names and partition keys. If several policies have the same
/// name and key, the first counts.
struct PolicyNames<'p> {
    policies: &'p [ServerLimit],
    places: HashMap<(&'p str, Option<&'p [u8]>), usize>,
}

impl<'p> PolicyNames<'p> {
    fn new(policies: &'p [ServerLimit]) -> Self {
        let mut places = HashMap::new();
        for (place, policy) in policies.iter().enumerate() {
            let Some(name) = policy.name() else { continue };
            places.entry((name, policy.partition_key())).or_insert(place);
            // The entry without a key is for limits without a partition key, and for limits whose
            // key no policy has.
            places.entry((name, None)).or_insert(place);
        }
        Self { policies, places }
    }

    /// Returns the index of the policy with the same name as the limit. If both have a partition
    /// key, the keys must be equal.
    fn policy_of(&self, limit: &ServerLimit) -> Option<usize> {
        let (name, key) = (limit.name()?, limit.partition_key());
        self.places.get(&(name, key)).copied().or_else(|| {
            let place = *self.places.get(&(name, None))?;
            self.policies[place].partition_key.is_none().then_some(place)
        })
    }
}

/// Returns the limit, then the policies `beside` from the same field, and then the policies of
/// `RateLimit-Policy`. If exactly one of these policies has the number and the window of the limit,
/// it is merged into the limit.
pub(super) fn with_numbered_policies(
    mut limit: ServerLimit,
    beside: &[ServerLimit],
    policies: &[ServerLimit],
) -> Vec<ServerLimit> {
    // A policy with a name has the syntax of drafts 08 and later. It belongs to a `RateLimit`
    // field, and not to this limit.
    let unnamed = policies.iter().filter(|policy| policy.name.is_none());
    let mut own = beside.iter().chain(unnamed).filter(|policy| {
        policy.limit == limit.limit && (limit.window.is_none() || policy.window == limit.window)
    });
    let own = own.next().filter(|_| own.next().is_none());
    if let Some(own) = own {
        limit.window = own.window;
        limit.name = limit.name.or_else(|| own.name.clone());
    }
    let is_own = |policy: &&ServerLimit| own.is_some_and(|own| std::ptr::eq(own, *policy));
    let others = beside.iter().chain(policies).filter(|policy| !is_own(policy)).cloned();
    std::iter::once(limit).chain(others).collect()
}

/// Returns all lines of a field as one value. Returns `None` if the field is absent or too long.
fn joined<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, [u8]>> {
    let mut lines = headers.get_all(name).iter().map(|line| line.as_bytes());
    let mut value = Cow::Borrowed(lines.next()?);
    for line in lines {
        let value = value.to_mut();
        value.extend_from_slice(b", ");
        value.extend_from_slice(line);
        if value.len() > MAX_FIELD {
            return None;
        }
    }
    (value.len() <= MAX_FIELD).then_some(value)
}

pub(super) fn parse<T: FieldType>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    Parser::new(&joined(headers, name)?).parse().ok()
}

/// Reads each item. Returns `None` if `read` rejects an item, or if there is an inner list or too
/// many items.
pub(super) fn each<T>(list: &List, read: impl Fn(&Item) -> Option<T>) -> Option<Vec<T>> {
    if list.len() > MAX_LIMITS {
        return None;
    }
    let items = list.iter().map(|entry| match entry {
        ListEntry::Item(item) => read(item),
        ListEntry::InnerList(_) => None,
    });
    items.collect()
}

fn required<'i, T>(
    item: &'i Item,
    key: &str,
    read: impl Fn(&'i BareItem) -> Option<T>,
) -> Option<T> {
    optional(item, key, read)?
}

/// Returns a parameter. The outer `None` means that the parameter is malformed, and the inner
/// `None` means that it is absent.
fn optional<'i, T>(
    item: &'i Item,
    key: &str,
    read: impl Fn(&'i BareItem) -> Option<T>,
) -> Option<Option<T>> {
    match item.params.get(key) {
        None => Some(None),
        Some(value) => read(value).map(Some),
    }
}

fn string(value: &BareItem) -> Option<&str> {
    value.as_string().map(|text| text.as_str())
}

/// Returns the value as an integer, or `None` if it is not an integer of at least 0.
pub(super) fn natural(value: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(value.as_integer()?)).ok()
}

/// Returns the value as a window in seconds, or `None` if it is not an integer of at least 1.
fn window(value: &BareItem) -> Option<Duration> {
    natural(value).filter(|&secs| secs > 0).map(Duration::from_secs)
}
