//! What every format reads of a line.

use super::fields::CostSum;
use crate::trace::malformed::Fault;

/// How much of a line is held against a pattern when the format is looked for.
const LOOKED_AT: usize = 64 << 10;

/// The beginning of a line, by which its format is found.
pub(super) fn beginning(line: &[u8]) -> &[u8] {
    line.get(..LOOKED_AT).unwrap_or(line)
}

/// What a line says, as far as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) struct Entry<'a> {
    pub(in crate::trace) time: u64,
    pub(in crate::trace) subject: &'a [u8],
    pub(in crate::trace) cost: CostSum,
}

/// A format: reads one line after another.
pub(in crate::trace) trait Parse {
    /// Whether the record ends with this line; `is_first` says that the line begins a record. For a
    /// line that does not begin one, the answer must not depend on the lines before it.
    fn closes(&mut self, is_first: bool, line: &[u8]) -> bool {
        let _ = (is_first, line);
        true
    }

    /// Reads a line; none where it says nothing (a blank line, a comment).
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault>;
}
