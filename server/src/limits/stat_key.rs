use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::net::text::push_text;

/// The number of parts of a key that become labels of metrics: the domain and the first two
/// entries.
const LABELS: usize = 3;

/// The key of a limit in statistics. It consists of the domain and the entries on the path to the
/// limit. Each entry is a key or `key_value`.
///
/// The name cannot be split at its dots, because a domain, a key and a value can contain dots.
/// Therefore the ends of the first three parts are stored. Bytes that are not UTF-8 are escaped,
/// for example as `\xff`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatKey {
    name: String,
    /// The ends of the first three parts, as indices into `name`. A dot separates two parts.
    ends: SmallVec<[usize; LABELS]>,
}

impl StatKey {
    /// Creates the key of a domain without entries.
    pub(crate) fn new(domain: impl AsRef<[u8]>) -> Self {
        let mut name = String::new();
        push_text(&mut name, domain.as_ref());
        Self { ends: smallvec![name.len()], name }
    }

    /// Appends an entry. An empty value is equivalent to no value.
    pub(crate) fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.name.push('.');
        push_text(&mut self.name, key.as_ref());
        if !value.as_ref().is_empty() {
            self.name.push('_');
            push_text(&mut self.name, value.as_ref());
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

    /// Returns the domain and the first two entries, if they exist.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|end| end + 1));
        starts.zip(&self.ends).map(|(start, end)| self.name.get(start..*end).unwrap_or_default())
    }
}

/// Formats the [name](StatKey::name).
impl fmt::Display for StatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
