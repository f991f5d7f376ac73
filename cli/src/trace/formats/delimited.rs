//! Reads CSV and TSV with a header.
//!
//! A field can be in quotes. Then it can contain delimiters and newlines, and each quote inside it
//! is doubled. In other fields, a quote is an ordinary character. Lines can end in CRLF. A record
//! must have as many fields as the header.
//!
//! The crate `csv` is not used, because its parser `csv-core` finds the ends of records itself and
//! copies each field. The line reader of this program checks the maximum length of lines and
//! records before they are parsed, counts lines for messages, and returns slices of its buffer.

use std::borrow::Cow;

use memchr::memchr;

use super::parse::{Entry, Parse};
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::address::address;
use crate::trace::formats::fields::{ALL, CostField, CostSum, Names, Subject};
use crate::trace::malformed::{Fault, shown};
use crate::trace::options::Options;
use crate::trace::time::Clock;

/// The maximum number of rows that are read to detect whether a column contains addresses.
const ROWS: usize = 100;

/// A reader of records with a delimiter.
#[derive(Debug)]
pub(crate) struct Delimited {
    clock: Clock,
    delimiter: u8,
    columns: usize,
    time: usize,
    subject: Option<(usize, Subject)>,
    cost: Vec<(usize, CostField)>,
    /// The start and the end of each field of the current record.
    fields: Vec<(usize, usize)>,
    /// A copy of the subject of the current record, if its doubled quotes had to be replaced.
    owned: Vec<u8>,
    /// Whether a quote is open at the end of the current line.
    open: bool,
    header_is_ahead: bool,
}

impl Delimited {
    /// Determines the fields from the header, which is the first line that is not blank.
    pub(super) fn new(
        options: &Options,
        head: &[u8],
        delimiter: u8,
    ) -> Result<(Self, Names), Error> {
        let (header, rows) = header(head, delimiter);
        let mut fields = Vec::new();
        split(header, delimiter, &mut fields);
        let names: Vec<String> = fields
            .iter()
            .map(|&at| String::from_utf8_lossy(unquoted(header, at).trim_ascii()).into())
            .collect();
        let place = |name: &str| {
            let other_case = || names.iter().position(|known| known.eq_ignore_ascii_case(name));
            names.iter().position(|known| known == name).or_else(other_case)
        };
        let find = |name: &str| place(name).and_then(|place| names.get(place).cloned());
        let says_address = |name: &str| {
            let says = |row: &[u8], place: usize| {
                let mut fields = Vec::new();
                split(row, delimiter, &mut fields);
                fields.get(place).is_some_and(|&at| address(&unquoted(row, at)).is_some())
            };
            let mut rows = rows.split(|&byte| byte == b'\n').take(ROWS);
            place(name).is_some_and(|place| rows.any(|row| says(row, place)))
        };
        let settled = Names::settle(options, find, says_address, || names.clone())?;
        let needed = |name: &str| {
            let message = || format!("the header {} has no `{name}`", shown(header, 120));
            place(name).ok_or_else(|| Error::new(ErrorKind::UnknownField, message()))
        };
        let subject = settled.subject.as_deref();
        let cost = settled.cost.iter().map(|cost| Ok((needed(&cost.name)?, cost.clone())));
        let this = Self {
            clock: Clock::new(options.time_unit),
            delimiter,
            columns: names.len(),
            time: needed(&settled.time)?,
            subject: subject
                .map(|name| Ok((needed(name)?, Subject::for_field(name))))
                .transpose()?,
            cost: cost.collect::<Result<_, Error>>()?,
            fields,
            owned: Vec::new(),
            open: false,
            header_is_ahead: true,
        };
        Ok((this, settled))
    }

    /// Returns the delimiter of a header: the one of `,`, `;` and tab that separates the most
    /// fields.
    pub(super) fn delimiter(header: &[u8]) -> Option<u8> {
        let mut fields = Vec::new();
        let counted = [b',', b'\t', b';'].map(|delimiter| {
            split(header, delimiter, &mut fields);
            (fields.len(), delimiter)
        });
        counted
            .into_iter()
            .rev()
            .max_by_key(|(count, _)| *count)
            .and_then(|(count, delimiter)| (count > 1).then_some(delimiter))
    }
}

impl Parse for Delimited {
    #[inline]
    fn closes(&mut self, is_first: bool, line: &[u8]) -> bool {
        let open = !is_first && self.open;
        self.open = leaves_open(open, line, self.delimiter);
        !self.open
    }

    fn parse<'a>(&'a mut self, record: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        if record.trim_ascii().is_empty() {
            return Ok(None);
        }
        if self.header_is_ahead {
            self.header_is_ahead = false;
            return Ok(None);
        }
        split(record, self.delimiter, &mut self.fields);
        let beyond = self.fields.get(self.columns..).unwrap_or_default();
        // Some programs write a delimiter at the end of each record, but not at the end of the
        // header. So additional fields are allowed if they are empty.
        if self.fields.len() < self.columns || beyond.iter().any(|(from, to)| from < to) {
            let (found, wanted) = (self.fields.len(), self.columns);
            return Err(Fault::malformed(format!("{found} fields where the header has {wanted}")));
        }
        let text =
            |column: usize| unquoted(record, self.fields.get(column).copied().unwrap_or_default());
        let time = self.clock.read(&text(self.time))?;
        let mut cost = CostSum::new(!self.cost.is_empty());
        for (column, of) in &self.cost {
            cost = cost.add(&text(*column), of)?;
        }
        let subject = match self.subject.map(|(column, subject)| (subject, text(column))) {
            None => ALL,
            Some((subject, Cow::Borrowed(text))) => subject.within(text),
            Some((subject, Cow::Owned(text))) => {
                self.owned = text;
                subject.within(&self.owned)
            }
        };
        Ok(Some(Entry { time, subject, cost }))
    }
}

/// Returns the header, which is the first record that is not blank, and the rest of the input.
/// Quoted fields of the header can contain newlines.
pub(super) fn header(head: &[u8], delimiter: u8) -> (&[u8], &[u8]) {
    let mut begins = 0;
    let mut at = 0;
    let mut open = false;
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        at += line.len();
        open = leaves_open(open, line, delimiter);
        if !open && line.trim_ascii().is_empty() && head.get(begins..at) == Some(line) {
            begins = at;
        } else if !open {
            break;
        }
    }
    let header = head.get(begins..at).unwrap_or_default();
    let header = header.strip_suffix(b"\n").unwrap_or(header);
    let rows = head.get(at..).unwrap_or_default();
    (header.strip_suffix(b"\r").unwrap_or(header), rows)
}

/// Returns `true` if a quote is open at the end of the line. `open` is whether a quote is open
/// before the line.
#[inline]
fn leaves_open(open: bool, line: &[u8], delimiter: u8) -> bool {
    if memchr(b'"', line).is_none() {
        return open;
    }
    let mut rest = line;
    if open {
        match behind_quotes(rest).and_then(|behind| rest.get(behind..)) {
            None => return true,
            Some(behind) => match memchr(delimiter, behind) {
                None => return false,
                Some(at) => rest = behind.get(at + 1..).unwrap_or_default(),
            },
        }
    }
    loop {
        match field_end(rest, delimiter) {
            End::Delimiter(at) => rest = rest.get(at + 1..).unwrap_or_default(),
            End::Record => return false,
            End::Open => return true,
        }
    }
}

/// The end of the first field of a text: a delimiter, the end of the record, or none, because a
/// quote is still open.
enum End {
    Delimiter(usize),
    Record,
    Open,
}

#[inline]
fn field_end(text: &[u8], delimiter: u8) -> End {
    let quotes = match text {
        [b'"', inside @ ..] => match behind_quotes(inside) {
            Some(behind) => behind + 1,
            None => return End::Open,
        },
        _ => 0,
    };
    match text.get(quotes..).and_then(|rest| memchr(delimiter, rest)) {
        Some(at) => End::Delimiter(quotes + at),
        None => End::Record,
    }
}

/// Returns the position after the closing quote of a text that begins inside quotes.
fn behind_quotes(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr(b'"', text.get(from..)?)?;
        if text.get(at + 1) != Some(&b'"') {
            return Some(at + 1);
        }
        from = at + 2;
    }
}

#[inline]
fn split(record: &[u8], delimiter: u8, fields: &mut Vec<(usize, usize)>) {
    fields.clear();
    let mut from = 0;
    while let Some(rest) = record.get(from..) {
        if let End::Delimiter(at) = field_end(rest, delimiter) {
            fields.push((from, from + at));
            from += at + 1;
        } else {
            fields.push((from, record.len()));
            break;
        }
    }
}

/// Returns a field without its quotes.
#[inline]
fn unquoted(record: &[u8], (from, to): (usize, usize)) -> Cow<'_, [u8]> {
    let text = record.get(from..to).unwrap_or_default();
    match text {
        [b'"', inside @ .., b'"'] if memchr(b'"', inside).is_none() => Cow::Borrowed(inside),
        [b'"', inside @ ..] => Cow::Owned(without_quotes(inside)),
        _ => Cow::Borrowed(text),
    }
}

/// Returns the content of a quoted field, given the text after its opening quote. A doubled quote
/// becomes one quote, and text after the closing quote is a part of the field.
fn without_quotes(inside: &[u8]) -> Vec<u8> {
    let close = behind_quotes(inside).unwrap_or(inside.len());
    let (quoted, behind) = inside.split_at_checked(close).unwrap_or((inside, &[]));
    let quoted = quoted.strip_suffix(b"\"").unwrap_or(quoted);
    let mut text = Vec::with_capacity(inside.len());
    let mut rest = quoted.iter();
    while let Some(&byte) = rest.next() {
        text.push(byte);
        if byte == b'"' {
            rest.next();
        }
    }
    text.extend_from_slice(behind);
    text
}
