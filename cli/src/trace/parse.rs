//! What the formats have in common.

use super::faults::Fault;

/// What a line says, as far as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) time: u64,
    pub(super) subject: &'a [u8],
    pub(super) cost: u64,
}

/// A format: reads one line after another.
pub(super) trait Parse {
    /// Whether the record ends with this line; `is_first` says that the line begins a record.
    fn closes(&mut self, is_first: bool, line: &[u8]) -> bool {
        let _ = (is_first, line);
        true
    }

    /// Reads a line; none where it says nothing (a blank line, a comment).
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault>;
}
