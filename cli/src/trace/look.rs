//! Finds out the format of an input by looking at its beginning.

use super::access_log::AccessLog;
use super::delimited::{self, Delimited};
use super::error::{Error, ErrorKind};
use super::faults::shown;
use super::fields::Names;
use super::json_lines::JsonLines;
use super::options::{Format, Options};

/// How many lines are looked at for one that tells the format.
const LINES: usize = 100;

/// The mark that some programs put before UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The reader of one of the formats.
pub(super) enum Reader {
    AccessLog(AccessLog),
    JsonLines(JsonLines),
    Delimited(Delimited),
}

/// What an input is: its format and the names of its fields.
pub(super) struct Look {
    pub(super) reader: Reader,
    pub(super) format: Format,
    pub(super) names: Names,
}

/// Looks at the beginning of an input, which is not empty.
pub(super) fn look(head: &[u8], options: &Options) -> Result<Look, Error> {
    let format = match options.format {
        Some(format) => format,
        None => recognise(head, options)?,
    };
    let (reader, names) = match format {
        Format::AccessLog => {
            let (log, names) = AccessLog::new(options)?;
            (Reader::AccessLog(log), names)
        }
        Format::JsonLines => {
            let (json, names) = JsonLines::new(options, head)?;
            (Reader::JsonLines(json), names)
        }
        Format::Csv => {
            let delimiter = delimiter(head).filter(|&delimiter| delimiter != b'\t').unwrap_or(b',');
            delimited(options, head, delimiter)?
        }
        Format::Tsv => delimited(options, head, b'\t')?,
    };
    Ok(Look { reader, format, names })
}

fn delimited(options: &Options, head: &[u8], delimiter: u8) -> Result<(Reader, Names), Error> {
    let header = delimited::header(head, delimiter);
    let (delimited, names) = Delimited::new(options, header, delimiter)?;
    Ok((Reader::Delimited(delimited), names))
}

/// The delimiter of the header, where one parts it.
fn delimiter(head: &[u8]) -> Option<u8> {
    // Which line is the header does not hang on the delimiter, but for newlines within quotes.
    Delimited::delimiter(delimited::header(head, b','))
}

/// The first line tells, if it is one of an access log, a JSON object, or a header that has the
/// fields that are needed. If it is none, a line soon behind it tells.
fn recognise(head: &[u8], options: &Options) -> Result<Format, Error> {
    let lines = head.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let first = lines.clone().next().unwrap_or_default();
    if let Some(format) = recognise_line(first) {
        return Ok(format);
    }
    let delimiter = delimiter(head);
    let format = if delimiter == Some(b'\t') { Format::Tsv } else { Format::Csv };
    if delimited(options, head, delimiter.unwrap_or(b',')).is_ok() {
        return Ok(format);
    }
    if let Some(format) = lines.take(LINES).find_map(recognise_line) {
        return Ok(format);
    }
    if delimiter.is_some() {
        // A header, though without the fields that are needed, which will be the message.
        return Ok(format);
    }
    let message = format!(
        "this is no access log, no JSON lines, no CSV or TSV with a header; it begins with `{}`",
        shown(first, 80)
    );
    Err(Error::new(ErrorKind::UnknownFormat, message))
}

fn recognise_line(line: &[u8]) -> Option<Format> {
    if JsonLines::recognises(line) {
        Some(Format::JsonLines)
    } else if AccessLog::recognises(line) {
        Some(Format::AccessLog)
    } else {
        None
    }
}
