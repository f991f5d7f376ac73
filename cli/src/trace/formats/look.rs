//! Finds out the format of an input by looking at its beginning.

use super::Reader;
use super::access_log::AccessLog;
use super::delimited::{self, Delimited};
use super::envelope::{Envelope, Enveloped};
use super::json_lines::JsonLines;
use super::logfmt::Logfmt;
use super::pattern::Matched;
use super::w3c::W3c;
use crate::trace::error::{Error, ErrorKind};
use crate::trace::faults::shown;
use crate::trace::fields::Names;
use crate::trace::options::{Format, Options};

/// How many lines are looked at for one that tells the format.
const LINES: usize = 100;

/// The mark that some programs put before UTF-8.
pub(in super::super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What an input is: its format and the names of its fields.
pub(in super::super) struct Look {
    pub(in super::super) reader: Reader,
    pub(in super::super) format: Format,
    pub(in super::super) envelope: Option<Envelope>,
    pub(in super::super) names: Names,
}

/// A format, and what is around each line of it.
#[derive(Clone, Copy)]
struct Found {
    envelope: Option<Envelope>,
    format: Format,
}

/// Looks at the beginning of an input, which is not empty.
pub(in super::super) fn look(head: &[u8], options: &Options) -> Result<Look, Error> {
    let Found { envelope, format } = match (&options.pattern, options.format) {
        (Some(_), _) => Found { envelope: None, format: Format::Pattern },
        (None, Some(format)) => {
            let found = of_lines(head, options).filter(|found| found.format == format);
            found.unwrap_or(Found { envelope: None, format })
        }
        (None, None) => recognise(head, options)?,
    };
    let (reader, names) = match envelope {
        None => reader(format, head, options)?,
        Some(envelope) => {
            let (inner, names) = reader(format, &envelope.open_all(head), options)?;
            (Reader::Enveloped(Box::new(Enveloped::new(envelope, inner))), names)
        }
    };
    Ok(Look { reader, format, envelope, names })
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

/// The delimiter of the header, where one parts it.
fn delimiter(head: &[u8]) -> Option<u8> {
    // Which line is the header does not hang on the delimiter, but for newlines within quotes.
    Delimited::delimiter(delimited::header(head, b',').0)
}

/// The first line tells, if it is one of a format that is known by its lines, or a header that has
/// the fields that are needed. If it is none, a line soon behind it tells.
fn recognise(head: &[u8], options: &Options) -> Result<Found, Error> {
    let first = lines(head).next().unwrap_or_default();
    if let Some(found) = of_line(first, options) {
        return Ok(found);
    }
    let delimiter = delimiter(head);
    let format = if delimiter == Some(b'\t') { Format::Tsv } else { Format::Csv };
    let of_header = Found { envelope: None, format };
    if delimited(options, head, delimiter.unwrap_or(b',')).is_ok() {
        return Ok(of_header);
    }
    if let Some(found) = of_lines(head, options) {
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
        // A header, though without the fields that are needed, which will be the message.
        return Ok(of_header);
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

/// What the first of the lines says that tells the format.
fn of_lines(head: &[u8], options: &Options) -> Option<Found> {
    lines(head).take(LINES).find_map(|line| of_line(line, options))
}

fn of_line(line: &[u8], options: &Options) -> Option<Found> {
    // What is around lines comes first: the address of a host that sent them is not a client's.
    let within = |envelope: Envelope| {
        let format = of_bare_line(&envelope.open_all(line), options)?;
        Some(Found { envelope: Some(envelope), format })
    };
    Envelope::candidates(line)
        .find_map(within)
        .or_else(|| Some(Found { envelope: None, format: of_bare_line(line, options)? }))
}

fn of_bare_line(line: &[u8], options: &Options) -> Option<Format> {
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

/// Whether pairs say the time, without which they are but a part of some other line.
fn has_time(line: &[u8], options: &Options) -> bool {
    use crate::trace::options::{By, Cost};
    let options = Options { by: By::All, cost: Cost::One, ..options.clone() };
    Logfmt::new(&options, line).is_ok()
}

/// Whether a line holds what no text does.
fn is_binary(line: &[u8]) -> bool {
    let control =
        |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace() && *byte != 0x1b;
    line.contains(&0) || (std::str::from_utf8(line).is_err() && line.iter().any(control))
}
