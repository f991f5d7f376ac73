//! Reads fields that contain one number each: the fields of drafts 00 to 06, and the fields of
//! vendors.

use std::time::SystemTime;

use http::{HeaderMap, HeaderName};
use sfv::{List, ListEntry};

use super::ServerLimit;
use super::moment::{ceil_number, floor_number, moment};
use super::structured::{
    each, natural, numbered_limit, parse, policy_of_number, with_numbered_policies,
};

/// The prefixes of field names that can contain the name of a limit. For example,
/// `x-ratelimit-limit-requests` and `x-ratelimit-requests-limit` contain the name `requests`.
const PREFIXES: [&str; 3] = ["x-ratelimit-", "x-rate-limit-", "anthropic-ratelimit-"];

/// The field of Shopify, which contains `used/limit`.
const SHOPIFY: HeaderName = HeaderName::from_static("x-shopify-shop-api-call-limit");

/// The maximum number of limits whose names are parts of field names. Further limits are ignored.
const MAX_LIMITS: usize = 64;

/// The maximum length of the name of a limit, in bytes.
const MAX_NAME: usize = 128;

/// Words that name a unit if the name of a field contains them. OpenAI and Anthropic limit tokens,
/// and Linear limits the complexity of queries.
const UNITS: [&str; 2] = ["tokens", "complexity"];

/// The part of a limit that a field contains.
#[derive(Clone, Copy)]
enum Part {
    Limit,
    Remaining,
    Reset,
    /// The reset in seconds from now. This part takes precedence over [`Part::Reset`], because it
    /// does not depend on a synchronized clock.
    ResetAfter,
    Name,
}

/// The fields of one limit.
#[derive(Default)]
struct Fields<'h> {
    /// The name of the limit, which is a part of the names of its fields.
    name: &'h str,
    limit: Option<&'h HeaderName>,
    remaining: Option<&'h HeaderName>,
    reset: Option<&'h HeaderName>,
    reset_after: Option<&'h HeaderName>,
    name_field: Option<&'h HeaderName>,
}

/// Reads `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of drafts 00 to 06.
pub(super) fn draft_06(
    headers: &HeaderMap,
    policies: &[ServerLimit],
    now: SystemTime,
) -> Option<Vec<ServerLimit>> {
    let mut fields = Fields::default();
    for name in headers.keys() {
        let part = match name.as_str() {
            "ratelimit-limit" => Part::Limit,
            "ratelimit-remaining" => Part::Remaining,
            "ratelimit-reset" => Part::Reset,
            // GitLab sends the time of `RateLimit-Reset` also as a date in `RateLimit-ResetTime`.
            "ratelimit-resettime" if fields.reset.is_none() => Part::Reset,
            "ratelimit-name" => Part::Name,
            _ => continue,
        };
        fields.set(part, name);
    }
    let (limit, beside) = fields.read(headers, now)?;
    Some(with_numbered_policies(limit, &beside, policies))
}

/// Reads all other known fields.
pub(super) fn others(
    headers: &HeaderMap,
    policies: &[ServerLimit],
    now: SystemTime,
) -> Option<Vec<ServerLimit>> {
    let mut all: Vec<Fields<'_>> = Vec::new();
    for field in headers.keys() {
        let Some((name, part)) = classify(field.as_str()) else { continue };
        match all.iter().position(|fields| fields.name == name) {
            Some(place) => all[place].set(part, field),
            None if all.len() == MAX_LIMITS => {}
            None => {
                let mut fields = Fields { name, ..Fields::default() };
                fields.set(part, field);
                all.push(fields);
            }
        }
    }
    let mut limits = Vec::new();
    for fields in all {
        let Some((limit, beside)) = fields.read(headers, now) else { continue };
        let policies = if fields.name.is_empty() { policies } else { &[] };
        limits.extend(with_numbered_policies(limit, &beside, policies));
    }
    limits.extend(shopify(headers));
    (!limits.is_empty()).then_some(limits)
}

/// Derives the name of a limit, and the part of the limit that a field contains, from the name of
/// the field.
fn classify(field: &str) -> Option<(&str, Part)> {
    let rest = PREFIXES.iter().find_map(|prefix| field.strip_prefix(prefix))?;
    match rest {
        "reset-after" => return Some(("", Part::ResetAfter)),
        // GitHub, Discord.
        "resource" | "bucket" => return Some(("", Part::Name)),
        _ => {}
    }
    let parts = [("limit", Part::Limit), ("remaining", Part::Remaining), ("reset", Part::Reset)];
    let alone = parts.iter().find(|(word, _)| rest == *word).map(|(_, part)| ("", *part));
    let first = || {
        parts.iter().find_map(|(word, part)| {
            let name = rest.strip_prefix(word)?.strip_prefix('-')?;
            Some((name, *part))
        })
    };
    let last = || {
        parts.iter().find_map(|(word, part)| {
            let name = rest.strip_suffix(word)?.strip_suffix('-')?;
            Some((name, *part))
        })
    };
    let found = alone.or_else(first).or_else(last)?;
    (found.0.len() <= MAX_NAME).then_some(found)
}

/// Reads Shopify's field `used/limit`. The remaining amount is the difference of both numbers.
fn shopify(headers: &HeaderMap) -> Option<ServerLimit> {
    let (used, limit) = headers.get(&SHOPIFY)?.to_str().ok()?.split_once('/')?;
    let (used, limit) = (ceil_number(used)?, floor_number(limit)?);
    Some(ServerLimit {
        limit: Some(limit),
        remaining: Some(limit.saturating_sub(used)),
        ..ServerLimit::default()
    })
}

impl<'h> Fields<'h> {
    fn set(&mut self, part: Part, field: &'h HeaderName) {
        let place = match part {
            Part::Limit => &mut self.limit,
            Part::Remaining => &mut self.remaining,
            Part::Reset => &mut self.reset,
            Part::ResetAfter => &mut self.reset_after,
            Part::Name => &mut self.name_field,
        };
        *place = Some(field);
    }

    /// Reads the fields of a limit. Returns the limit, and the policies that follow the limit in
    /// its field, as in `100, 100;w=60`. Returns `None` if all fields are malformed.
    fn read(
        &self,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Option<(ServerLimit, Vec<ServerLimit>)> {
        let quota = self.limit.and_then(|field| quota(headers, field));
        let remaining = self.remaining.and_then(|field| remaining(headers, field));
        let latest = |field: &'h HeaderName| latest(headers, field, |text| moment(text, now));
        let resets_at = self.reset_after.and_then(latest).or_else(|| self.reset.and_then(latest));
        if quota.is_none() && remaining.is_none() && resets_at.is_none() {
            return None;
        }
        let name = match self.name {
            "" => self.name_field.and_then(|field| name_in(headers, field)),
            name => Some(name),
        };
        let (limit, policies) = quota.unwrap_or_default();
        let limit = ServerLimit {
            name: name.map(Into::into).or(limit.name),
            unit: unit(self.name).map(Into::into),
            remaining,
            resets_at,
            ..limit
        };
        Some((limit, policies))
    }
}

/// Reads a limit, with or without its window, and the policies that can follow it: `100`,
/// `100;w=60`, `100, 100;w=60, 1000;w=3600`.
fn quota(headers: &HeaderMap, field: &HeaderName) -> Option<(ServerLimit, Vec<ServerLimit>)> {
    if let Some(limit) = smallest(headers, field, floor_number) {
        return Some((ServerLimit { limit: Some(limit), ..ServerLimit::default() }, Vec::new()));
    }
    let mut list: List = parse(headers, field)?;
    let ListEntry::Item(first) = list.first()? else { return None };
    let limit = numbered_limit(first)?;
    list.remove(0);
    Some((limit, each(&list, policy_of_number)?))
}

/// Reads one or several numbers, which may have parameters, and returns the smallest number.
/// Examples are `76` and `76;w=21600`.
fn remaining(headers: &HeaderMap, field: &HeaderName) -> Option<u64> {
    smallest(headers, field, floor_number).or_else(|| {
        let list: List = parse(headers, field)?;
        each(&list, |item| natural(&item.bare_item))?.into_iter().min()
    })
}

/// Returns the unit of a limit, if its name contains the unit: `input-tokens` counts tokens.
fn unit(name: &str) -> Option<&'static str> {
    UNITS.into_iter().find(|&unit| name.split('-').any(|word| word == unit))
}

/// Returns the smallest value of all lines of a field, or `None` if a line is malformed.
fn smallest<T: Ord>(
    headers: &HeaderMap,
    field: &HeaderName,
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    lines(headers, field, read)?.into_iter().min()
}

/// Returns the latest value of all lines of a field, or `None` if a line is malformed.
fn latest<T: Ord>(
    headers: &HeaderMap,
    field: &HeaderName,
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    lines(headers, field, read)?.into_iter().max()
}

fn lines<T>(
    headers: &HeaderMap,
    field: &HeaderName,
    read: impl Fn(&str) -> Option<T>,
) -> Option<Vec<T>> {
    // The lines are read as UTF-8, because a duration can contain the micro sign, which is not
    // ASCII.
    let text =
        |line: &'_ http::HeaderValue| std::str::from_utf8(line.as_bytes()).ok().and_then(&read);
    headers.get_all(field).iter().map(text).collect()
}

/// Returns the name that a field contains. Returns `None` if the name is empty, too long, or not
/// printable ASCII.
fn name_in<'h>(headers: &'h HeaderMap, field: &HeaderName) -> Option<&'h str> {
    let name = headers.get(field)?.to_str().ok()?.trim();
    (!name.is_empty() && name.len() <= MAX_NAME).then_some(name)
}
