//! The readers of all formats.

use super::access_log::AccessLog;
use super::delimited::Delimited;
use super::envelope::Enveloped;
use super::json_lines::JsonLines;
use super::logfmt::Logfmt;
use super::parse::{Entry, Parse};
use super::pattern::Matched;
use super::w3c::W3c;
use crate::trace::malformed::Fault;

/// The reader of one format.
pub(in crate::trace) enum Reader {
    AccessLog(AccessLog),
    Delimited(Delimited),
    Enveloped(Box<Enveloped<Self>>),
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
