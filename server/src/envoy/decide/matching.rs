//! Finds the limit that applies to a descriptor.

use std::sync::Arc;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use smallvec::SmallVec;

use super::{RequestError, StatKey};
use crate::envoy::request::{Entry, RateLimitDescriptor};
use crate::limits::config::{By, Config, Counted, Kind, Level, Limit, Unit};

/// The limit of a descriptor.
#[derive(Debug)]
pub(super) struct Match<'c> {
    pub(super) limit: Arc<Limit>,
    /// The key in statistics. It can contain values from the request.
    pub(super) stat_key: Arc<StatKey>,
    /// For each entry, the pattern that matched its value if all values of the pattern share one
    /// count, or `None`.
    pub(super) shared: SmallVec<[Option<&'c str>; 4]>,
}

/// Returns the limit that applies to a descriptor in a domain: the limit in the request, or else
/// the limit that is configured for exactly these entries. Returns `None` if there is no limit.
pub(super) fn find<'c>(
    config: &'c Config,
    domain: &[u8],
    descriptor: &RateLimitDescriptor,
) -> Result<Option<Match<'c>>, RequestError> {
    let Some(level) = config.domain(domain) else { return Ok(None) };
    match &descriptor.limit {
        Some(limit) => limit_of_request(domain, &descriptor.entries, *limit).map(Some),
        None => Ok(configured(level, domain, &descriptor.entries)),
    }
}

/// Creates the limit that a request contains. It has no name, and it is neither a shadow nor a
/// quota.
fn limit_of_request<'c>(
    domain: &[u8],
    entries: &[Entry],
    limit: RateLimitOverride,
) -> Result<Match<'c>, RequestError> {
    let unit = Unit::from_number(limit.unit).ok_or_else(|| {
        RequestError::new(format!(
            "the limit of a descriptor has the unit {}; it must be from 1 to 7",
            limit.unit
        ))
    })?;
    let counted = Counted::new(limit.requests_per_unit, unit.span())
        .map_err(|error| RequestError::new(error.to_string()))?;
    let stat_key = detailed_key(domain, entries, &[]);
    let limit = Limit {
        kind: Kind::Counted(counted),
        name: "".into(),
        replaces: [].into(),
        is_shadow: false,
        is_quota: false,
        may_be_leased: false,
        has_detailed_metric: false,
        metadata: None,
        // The key does not contain the values of the request, because their number has no bound.
        stat_key: key_of(domain, entries.iter().map(|entry| (&*entry.key, None)))
            .with_suffix(" (of requests)")
            .into(),
        place: "".into(),
    };
    Ok(Match { limit: Arc::new(limit), stat_key: stat_key.into(), shared: SmallVec::new() })
}

fn configured<'c>(root: &'c Level, domain: &[u8], entries: &[Entry]) -> Option<Match<'c>> {
    let mut level = root;
    let mut shared = SmallVec::new();
    let mut values = SmallVec::<[Option<&[u8]>; 4]>::new();
    let mut has_value_metric = false;
    for (index, entry) in entries.iter().enumerate() {
        let (rule, by) = level.find(&entry.key, &entry.value)?;
        let (pattern, configured) = match by {
            By::Value => (None, Some(&*entry.value)),
            By::Pattern(pattern) => (Some(pattern.as_str()), Some(pattern.as_str().as_bytes())),
            By::Key => (None, None),
        };
        let pattern = pattern.filter(|_| rule.shares_threshold);
        shared.push(pattern);
        // If the values of a pattern share a count, they share the statistics too.
        let is_by_value = rule.has_value_metric && pattern.is_none();
        has_value_metric |= is_by_value;
        values.push(if is_by_value { Some(&*entry.value) } else { configured });
        if index + 1 < entries.len() {
            level = &rule.next;
            continue;
        }
        let limit = Arc::clone(rule.limit.as_ref()?);
        let stat_key = if limit.has_detailed_metric {
            detailed_key(domain, entries, &shared).into()
        } else if has_value_metric {
            let keys = entries.iter().map(|entry| &*entry.key);
            key_of(domain, keys.zip(values)).into()
        } else {
            Arc::clone(&limit.stat_key)
        };
        return Some(Match { limit, stat_key, shared });
    }
    None
}

/// Returns the key with the values of all entries. If the values of an entry share a count, the key
/// contains their pattern instead of the value.
fn detailed_key(domain: &[u8], entries: &[Entry], shared: &[Option<&str>]) -> StatKey {
    let entries = entries.iter().enumerate().map(|(index, entry)| {
        let pattern = shared.get(index).copied().flatten();
        (&*entry.key, Some(pattern.map_or(&*entry.value, str::as_bytes)))
    });
    key_of(domain, entries)
}

fn key_of<'e>(
    domain: &[u8],
    entries: impl Iterator<Item = (&'e [u8], Option<&'e [u8]>)>,
) -> StatKey {
    let mut stat_key = StatKey::new(domain);
    for (key, value) in entries {
        stat_key.push(key, value.unwrap_or_default());
    }
    stat_key
}
