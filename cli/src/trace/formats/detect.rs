//! Detects the format of an input by its beginning.

use super::access_log::AccessLog;
use super::delimited::{self, Delimited};
use super::envelope::{Envelope, Enveloped, Opener};
use super::json_lines::JsonLines;
use super::logfmt::Logfmt;
use super::pattern::Matched;
use super::reader::Reader;
use super::w3c::W3c;
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::fields::Names;
use crate::trace::malformed::shown;
use crate::trace::options::{Format, Options};

/// The maximum number of lines in which the reader searches for a known format.
const LINES: usize = 100;

/// The byte-order mark that some programs write before UTF-8.
pub(in crate::trace) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The format of an input and the names of its fields.
pub(in crate::trace) struct Detected {
    pub(in crate::trace) reader: Reader,
    pub(in crate::trace) format: Format,
    pub(in crate::trace) envelope: Option<Envelope>,
    pub(in crate::trace) names: Names,
}

/// The format of a line, and the envelope around the line.
#[derive(Clone, Copy)]
struct LineFormat {
    envelope: Option<Opener>,
    format: Format,
}

/// Detects the format by the beginning of an input, which must not be empty.
pub(in crate::trace) fn detect(head: &[u8], options: &Options) -> Result<Detected, Error> {
    let LineFormat { envelope, format } = match (&options.pattern, options.format) {
        (Some(_), _) => LineFormat { envelope: None, format: Format::Pattern },
        (None, Some(format)) => {
            let found = lines_format(head, options).filter(|found| found.format == format);
            found.unwrap_or(LineFormat { envelope: None, format })
        }
        (None, None) => recognise(head, options)?,
    };
    let (reader, names) = match envelope {
        None => reader(format, head, options)?,
        Some(opener) => {
            let (inner, names) = reader(format, &opener.open_all(head), options)?;
            (Reader::Enveloped(Box::new(Enveloped::new(opener, inner))), names)
        }
    };
    Ok(Detected { reader, format, envelope: envelope.map(|opener| opener.envelope), names })
}

fn reader(format: Format, head: &[u8], options: &Options) -> Result<(Reader, Names), Error> {
    Ok(match format {
        Format::AccessLog => {
            let (log, names) = AccessLog::new(options, head)?;
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
        Format::W3c => {
            let (w3c, names) = W3c::new(options, head)?;
            (Reader::W3c(w3c), names)
        }
        Format::Logfmt => {
            let (logfmt, names) = Logfmt::new(options, head)?;
            (Reader::Logfmt(logfmt), names)
        }
        Format::Alb | Format::Elb | Format::HaProxy | Format::Envoy | Format::Pattern => {
            let (matched, names) = match &options.pattern {
                Some(pattern) => Matched::given(pattern, options)?,
                None => Matched::known(format, options, head)?,
            };
            (Reader::Matched(matched), names)
        }
    })
}

fn delimited(options: &Options, head: &[u8], delimiter: u8) -> Result<(Reader, Names), Error> {
    let (delimited, names) = Delimited::new(options, head, delimiter)?;
    Ok((Reader::Delimited(delimited), names))
}

/// Returns the delimiter of the header, if there is one.
fn delimiter(head: &[u8]) -> Option<u8> {
    // The delimiter of the header is not known yet, so the comma is assumed. Another delimiter
    // could change only the end of a header that contains newlines within quotes.
    Delimited::delimiter(delimited::header(head, b',').0)
}

/// Returns the format of the first line, if the line has a known format or is a header with the
/// needed fields. Otherwise, returns the first known format of the next lines.
fn recognise(head: &[u8], options: &Options) -> Result<LineFormat, Error> {
    let first = lines(head).next().unwrap_or_default();
    if let Some(found) = line_format(first, options) {
        return Ok(found);
    }
    let delimiter = delimiter(head);
    let format = if delimiter == Some(b'\t') { Format::Tsv } else { Format::Csv };
    let header_format = LineFormat { envelope: None, format };
    if delimited(options, head, delimiter.unwrap_or(b',')).is_ok() {
        return Ok(header_format);
    }
    if let Some(found) = lines_format(head, options) {
        return Ok(found);
    }
    if is_binary(first) {
        let message = format!(
            "this is binary data, not text: it begins with `{}` (UTF-16 is read where it begins with \
             a byte-order mark, and data packed with gzip or zstd as it is)",
            shown(first, 40)
        );
        return Err(Error::new(ErrorKind::UnknownFormat, message));
    }
    if delimiter.is_some() {
        // The header does not have the needed fields. The reader for this format will return an
        // error that names them.
        return Ok(header_format);
    }
    let message = format!(
        "this is in no known format; it begins with `{}`; see --format, and --pattern to describe \
         its lines",
        shown(first, 80)
    );
    Err(Error::new(ErrorKind::UnknownFormat, message))
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

/// Returns the format of the first line with a known format.
fn lines_format(head: &[u8], options: &Options) -> Option<LineFormat> {
    lines(head).take(LINES).find_map(|line| line_format(line, options))
}

fn line_format(line: &[u8], options: &Options) -> Option<LineFormat> {
    // Envelopes are detected first. Otherwise, the address of the host that sent the line could be
    // mistaken for the address of the client.
    let within = |envelope: Envelope| {
        let opener = |adds_time| Opener { envelope, adds_time };
        let (bare, timed) = (opener(false).open_all(line), opener(true).open_all(line));
        let (format, adds_time) = match bare_line_format(&bare, options) {
            Some(Format::JsonLines) if !json_has_time(&bare, options) => {
                (Format::JsonLines, json_has_time(&timed, options))
            }
            Some(format) => (format, false),
            None if Logfmt::recognises(&bare) && has_time(&timed, options) => {
                (Format::Logfmt, true)
            }
            None => return None,
        };
        Some(LineFormat { envelope: Some(opener(adds_time)), format })
    };
    Envelope::candidates(line)
        .find_map(within)
        .or_else(|| Some(LineFormat { envelope: None, format: bare_line_format(line, options)? }))
}

fn bare_line_format(line: &[u8], options: &Options) -> Option<Format> {
    if W3c::recognises(line) {
        Some(Format::W3c)
    } else if JsonLines::recognises(line) {
        Some(Format::JsonLines)
    } else if AccessLog::recognises(line) {
        Some(Format::AccessLog)
    } else if let Some(format) = Matched::recognises(line) {
        Some(format)
    } else if Logfmt::recognises(line) && has_time(line, options) {
        Some(Format::Logfmt)
    } else {
        None
    }
}

/// Returns `true` if one of the `key=value` pairs of a line is a time. A line with pairs but
/// without a time has another format.
fn has_time(line: &[u8], options: &Options) -> bool {
    Logfmt::new(&only_time(options), line).is_ok()
}

/// Returns `true` if a JSON object has a field for the time.
fn json_has_time(line: &[u8], options: &Options) -> bool {
    JsonLines::new(&only_time(options), line).is_ok()
}

/// Returns the options without the fields of the subject, the cost and the duration.
fn only_time(options: &Options) -> Options {
    use crate::trace::options::{By, Cost};
    let (by, cost, late_cost) = (By::All, Cost::One, Vec::new());
    Options { by, cost, late_cost, duration: None, ..options.clone() }
}

/// Returns `true` if a line contains bytes that do not occur in text.
fn is_binary(line: &[u8]) -> bool {
    let control =
        |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace() && *byte != 0x1b;
    line.contains(&0) || (std::str::from_utf8(line).is_err() && line.iter().any(control))
}
