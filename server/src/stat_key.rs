use std::fmt;

use smallvec::{SmallVec, smallvec};

/// The number of parts of a key that are labels: the domain and two entries.
const LABELS: usize = 3;

/// The key of a limit in statistics: the domain and the entries of the path to the limit, each a
/// key or `key_value`.
///
/// It keeps the boundaries of the first parts, because a domain, a key and a value may contain
/// dots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatKey {
    name: String,
    /// The ends of the first parts within `name`; a dot separates two parts.
    ends: SmallVec<[usize; LABELS]>,
}

impl StatKey {
    /// Creates the key of a domain, without entries.
    pub(crate) fn new(domain: &str) -> Self {
        Self { name: domain.to_owned(), ends: smallvec![domain.len()] }
    }

    /// Appends an entry; an empty value is the same as no value.
    pub(crate) fn push(&mut self, key: &str, value: &str) {
        self.name.push('.');
        self.name.push_str(key);
        if !value.is_empty() {
            self.name.push('_');
            self.name.push_str(value);
        }
        if self.ends.len() < LABELS {
            self.ends.push(self.name.len());
        }
    }

    /// Appends a text to the last part.
    pub(crate) fn with_suffix(mut self, suffix: &str) -> Self {
        let end = self.name.len();
        self.name.push_str(suffix);
        if let Some(last) = self.ends.last_mut().filter(|last| **last == end) {
            *last = self.name.len();
        }
        self
    }

    /// Returns the parts, joined by dots: `domain.key_value.key`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the domain and the first two entries, as far as there are any.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|end| end + 1));
        starts.zip(&self.ends).map(|(start, end)| self.name.get(start..*end).unwrap_or_default())
    }
}

/// Writes the [name](StatKey::name).
impl fmt::Display for StatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
