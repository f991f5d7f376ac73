//! The formats (one file each), the detection of the format of an input, and the names of fields.

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
mod parse;
mod pattern;
mod reader;
mod w3c;

pub(super) use detect::{BYTE_ORDER_MARK, Detected, detect};
pub use envelope::Envelope;
pub(super) use parse::{Entry, Parse};
pub(super) use reader::Reader;
