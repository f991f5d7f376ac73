//! The formats, one file each; the detection of the format of an input; fields and their names.

mod access_log;
pub(super) mod address;
mod delimited;
pub(super) mod detect;
mod envelope;
pub(super) mod fields;
mod json_lines;
mod json_object;
mod log_line;
mod logfmt;
mod pattern;
mod w3c;

pub(super) use detect::{BYTE_ORDER_MARK, Detected, detect};
pub use envelope::Envelope;

use self::access_log::AccessLog;
use self::delimited::Delimited;
use self::envelope::Enveloped;
use self::json_lines::JsonLines;
use self::logfmt::Logfmt;
use self::pattern::Matched;
use self::w3c::W3c;
use super::malformed::Fault;

/// How much of a line is held against a pattern when the format is looked for.
const LOOKED_AT: usize = 64 << 10;

/// The beginning of a line, by which its format is found.
fn beginning(line: &[u8]) -> &[u8] {
    line.get(..LOOKED_AT).unwrap_or(line)
}

/// What a line says, as far as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) time: u64,
    pub(super) subject: &'a [u8],
    pub(super) cost: u64,
}

/// A format: reads one line after another.
pub(super) trait Parse {
    /// Whether the record ends with this line; `is_first` says that the line begins a record. For a
    /// line that does not begin one, the answer must not depend on the lines before it.
    fn closes(&mut self, is_first: bool, line: &[u8]) -> bool {
        let _ = (is_first, line);
        true
    }

    /// Reads a line; none where it says nothing (a blank line, a comment).
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault>;
}

/// The reader of one of the formats.
pub(super) enum Reader {
    AccessLog(AccessLog),
    Delimited(Delimited),
    Enveloped(Box<Enveloped>),
    JsonLines(JsonLines),
    Logfmt(Logfmt),
    Matched(Matched),
    W3c(W3c),
}

impl Parse for Reader {
    fn closes(&mut self, is_first: bool, line: &[u8]) -> bool {
        match self {
            Self::Delimited(delimited) => delimited.closes(is_first, line),
            _ => true,
        }
    }

    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        match self {
            Self::AccessLog(log) => log.parse(line),
            Self::Delimited(delimited) => delimited.parse(line),
            Self::Enveloped(enveloped) => enveloped.parse(line),
            Self::JsonLines(json) => json.parse(line),
            Self::Logfmt(logfmt) => logfmt.parse(line),
            Self::Matched(matched) => matched.parse(line),
            Self::W3c(w3c) => w3c.parse(line),
        }
    }
}
