//! The rules of a domain as a tree. The first entry of a descriptor selects a rule on the first
//! level. This rule contains the level for the second entry, and so on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::limit::Limit;
use super::pattern::Pattern;

/// The rules for one entry of a descriptor, by the key of the entry.
#[derive(Debug, Default)]
pub(crate) struct Level {
    keys: HashMap<Box<[u8]>, Values>,
}

/// The rules for entries with a certain key, by the value of the entry.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<Box<[u8]>, Rule>,
    /// The patterns in the order of the file. The first matching pattern applies.
    patterns: Vec<(Pattern, Rule)>,
    /// The texts of the patterns.
    pattern_texts: HashSet<Box<str>>,
    any: Option<Box<Rule>>,
}

/// The configuration of an entry: a limit, rules for the next entry, or both. For example, a rule
/// without a limit for the value `x` exempts `x` from the other rules of the key.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    pub(crate) limit: Option<Arc<Limit>>,
    pub(crate) next: Level,
    pub(crate) has_value_metric: bool,
    /// Whether all values that match the pattern share one count.
    pub(crate) shares_threshold: bool,
}

/// The part of a rule that matched the value of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'c> {
    Value,
    Pattern(&'c Pattern),
    Key,
}

impl Level {
    /// Returns the rule for an entry: a rule with its key and its value, or else the first matching
    /// pattern, or else a rule with its key and without a value.
    pub(crate) fn find(&self, key: &[u8], value: &[u8]) -> Option<(&Rule, By<'_>)> {
        let values = self.keys.get(key)?;
        if let Some(rule) = values.exact.get(value) {
            return Some((rule, By::Value));
        }
        if let Some((pattern, rule)) =
            values.patterns.iter().find(|(pattern, _)| pattern.matches(value))
        {
            return Some((rule, By::Pattern(pattern)));
        }
        values.any.as_deref().map(|rule| (rule, By::Key))
    }

    pub(super) fn contains(&self, key: &str, value: &str) -> bool {
        self.keys.get(key.as_bytes()).is_some_and(|values| match value {
            "" => values.any.is_some(),
            _ if value.contains('*') => values.pattern_texts.contains(value),
            _ => values.exact.contains_key(value.as_bytes()),
        })
    }

    pub(super) fn insert(&mut self, key: &str, value: &str, rule: Rule) {
        let values = self.keys.entry(key.as_bytes().into()).or_default();
        if value.is_empty() {
            values.any = Some(Box::new(rule));
        } else if value.contains('*') {
            values.pattern_texts.insert(value.into());
            values.patterns.push((Pattern::new(value), rule));
        } else {
            values.exact.insert(value.as_bytes().into(), rule);
        }
    }

    /// Calls `change` with each limit of this level and of the levels below it. A limit to which
    /// another [`Arc`] refers is not changed.
    pub(super) fn change_each_limit(&mut self, change: &mut impl FnMut(&mut Limit)) {
        for values in self.keys.values_mut() {
            let patterns = values.patterns.iter_mut().map(|(_, rule)| rule);
            let exact = values.exact.values_mut();
            for rule in exact.chain(patterns).chain(values.any.as_deref_mut()) {
                rule.limit.as_mut().and_then(Arc::get_mut).map(&mut *change);
                rule.next.change_each_limit(change);
            }
        }
    }

    /// Calls `see` with each limit of this level and of the levels below it.
    pub(crate) fn for_each_limit(&self, see: &mut impl FnMut(&Arc<Limit>)) {
        for values in self.keys.values() {
            let patterns = values.patterns.iter().map(|(_, rule)| rule);
            for rule in values.exact.values().chain(patterns).chain(values.any.as_deref()) {
                rule.limit.iter().for_each(&mut *see);
                rule.next.for_each_limit(see);
            }
        }
    }
}
