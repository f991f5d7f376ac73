//! The common interface of all formats.

use super::fields::CostSum;
use crate::trace::malformed::Fault;

/// The number of bytes at the beginning of a line that are compared with patterns to detect the
/// format.
const LOOKED_AT: usize = 64 << 10;

/// Returns the beginning of a line, by which its format is detected.
pub(super) fn beginning(line: &[u8]) -> &[u8] {
    line.get(..LOOKED_AT).unwrap_or(line)
}

/// The needed values of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) struct Entry<'a> {
    pub(in crate::trace) time: u64,
    pub(in crate::trace) subject: &'a [u8],
    pub(in crate::trace) cost: CostSum,
}

/// A parser of one format. It receives the lines of an input one after another.
pub(in crate::trace) trait Parse {
    /// Returns `true` if the record ends with this line. `is_first` is `true` if the line is the
    /// first line of its record. For later lines, the result must not depend on previous lines,
    /// because the line reader keeps the result for all records that contain the line.
    fn closes(&mut self, is_first: bool, line: &[u8]) -> bool {
        let _ = (is_first, line);
        true
    }

    /// Parses a line. Returns `None` if no record ends with the line, for example for a header, a
    /// blank line or a comment.
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault>;
}
