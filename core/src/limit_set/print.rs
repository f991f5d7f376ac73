//! Prints limit sets, and compares them.

use std::collections::BTreeMap;
use std::fmt;

use super::{LimitSet, Override, OverrideFor, Target};
use crate::policy::Policy;

/// Prints one line for each limit, in the form that the parser reads. The lines are ordered by name
/// and subjects, so that equal sets have equal texts.
impl fmt::Display for LimitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().values().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Debug for LimitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policies, overrides) = (self.policies().count(), self.overrides());
        write!(f, "LimitSet({policies} policies, {overrides} overrides)")
    }
}

impl LimitSet {
    /// Returns the lines of the set by their keys. A key is the name of the policy, followed by the
    /// subjects of an override, as in `plan for subject alice`.
    #[must_use]
    pub fn lines(&self) -> BTreeMap<String, String> {
        let mut lines = BTreeMap::new();
        for (name, limits) in &self.by_name {
            if let Some(policy) = &limits.policy {
                lines.insert(name.to_string(), policy.to_string());
            }
            for (target, limit) in limits.overrides() {
                lines.insert(key(name, Some(target)), line(limit, target));
            }
        }
        lines
    }

    /// Returns the changes that turn this set into `other`: the line of each changed limit before
    /// and after the change. A line is `None` if the set has no such limit.
    #[must_use]
    pub fn changes_to(&self, other: &Self) -> Vec<(Option<String>, Option<String>)> {
        let (mut before, after) = (self.lines(), other.lines());
        let mut changes = vec![];
        for (key, line) in after {
            match before.remove(&key) {
                Some(same) if same == line => {}
                before => changes.push((before, Some(line))),
            }
        }
        changes.extend(before.into_values().map(|line| (Some(line), None)));
        changes
    }

    /// Returns the line of the limit with this name and exactly this target. `None` as the target
    /// means the policy.
    #[must_use]
    pub fn line_of(&self, name: &str, target: Option<OverrideFor<'_>>) -> Option<String> {
        let limits = self.by_name.get(name)?;
        let Some(target) = target else { return limits.policy.as_ref().map(Policy::to_string) };
        let target = target.target();
        limits.get(target).map(|limit| line(limit, target))
    }
}

/// Returns the key of a limit: see [`LimitSet::lines`].
pub(super) fn key(name: &str, target: Option<Target<'_>>) -> String {
    match target {
        None => name.to_owned(),
        Some(target) => format!("{name} {target}"),
    }
}

fn line(Override { policy, ends_at }: &Override, target: Target<'_>) -> String {
    match ends_at {
        Some(end) => format!("{policy} until {} {target}", end.rfc3339()),
        None => format!("{policy} {target}"),
    }
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("for")?;
        let Self { tenant, subject } = self;
        if !tenant.is_empty() {
            write!(f, " tenant {}", Bytes(tenant))?;
        }
        match subject {
            Some(subject) => write!(f, " subject {}", Bytes(subject)),
            None => Ok(()),
        }
    }
}

/// Prints bytes as they are if they are a word of ASCII, and in double quotes otherwise.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'\\');
        match std::str::from_utf8(bytes) {
            Ok(word) if !word.is_empty() && bytes.iter().all(is_plain) => f.write_str(word),
            // A `#` after a space would begin a comment.
            _ => write!(f, "\"{}\"", bytes.escape_ascii().to_string().replace('#', "\\x23")),
        }
    }
}
