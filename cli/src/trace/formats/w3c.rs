//! Reads W3C extended log files of IIS and CloudFront.
//!
//! ```text
//! #Fields: date time c-ip cs-username cs-method cs-uri-stem sc-status sc-bytes
//! 2026-05-01 10:00:00 203.0.113.9 - GET /index.html 200 5120
//! ```
//!
//! Values are separated by tabs if a line has tabs, and by spaces otherwise. A line `#Fields` can
//! be repeated with other fields, for example when the settings of a server change within a day.

use super::parse::{Entry, Parse};
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::fields::{CostField, CostSum, Names, Subject};
use crate::trace::malformed::Fault;
use crate::trace::options::Options;
use crate::trace::time::Clock;

/// The names that other formats use for a field, each with the name of the same field in W3C logs.
const ALIASES: &[(&str, &str)] = &[
    ("agent", "cs(user-agent)"),
    ("bytes", "sc-bytes"),
    ("ip", "c-ip"),
    ("method", "cs-method"),
    ("path", "cs-uri-stem"),
    ("referer", "cs(referer)"),
    ("status", "sc-status"),
    ("user", "cs-username"),
    ("vhost", "cs-host"),
];

/// A reader of W3C extended log files.
#[derive(Debug)]
pub(crate) struct W3c {
    clock: Clock,
    options: Options,
    layout: Layout,
    /// The date of the last `#Date`, for files whose lines have only the time of the day.
    date: String,
    /// The date and the time of the day of the current line, joined by a space.
    time: Vec<u8>,
}

/// The positions of the fields.
#[derive(Debug)]
struct Layout {
    columns: usize,
    time: Time,
    subject: Option<(usize, Subject)>,
    cost: Vec<(usize, CostField)>,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    Column(usize),
    WithDate(usize, usize),
    OfDay(usize),
}

impl W3c {
    /// Determines the fields from the first `#Fields` of the input.
    pub(super) fn new(options: &Options, head: &[u8]) -> Result<(Self, Names), Error> {
        let fields = head.split(|&byte| byte == b'\n').find_map(|line| directive(line, b"Fields"));
        let Some(fields) = fields else {
            let message = "there is no line `#Fields`, which says what the lines hold";
            return Err(Error::new(ErrorKind::UnknownFormat, message));
        };
        let (layout, names) = Layout::settle(options, fields)?;
        let this = Self {
            clock: Clock::new(options.time_unit),
            options: options.clone(),
            layout,
            date: String::new(),
            time: Vec::new(),
        };
        Ok((this, names))
    }

    /// Returns `true` if a line can be the first line of a W3C extended log file.
    pub(super) fn recognises(line: &[u8]) -> bool {
        [&b"Version"[..], b"Software", b"Date", b"Fields", b"Start-Date"]
            .iter()
            .any(|name| directive(line, name).is_some())
    }

    fn read_time(&mut self, values: &[&[u8]]) -> Result<u64, Fault> {
        let value = |column: usize| values.get(column).copied().unwrap_or_default();
        let (date, time) = match self.layout.time {
            Time::Column(column) => return self.clock.read(value(column)),
            Time::WithDate(date, time) => (value(date), value(time)),
            Time::OfDay(time) => (self.date.as_bytes(), value(time)),
        };
        self.time.clear();
        self.time.extend_from_slice(date);
        self.time.push(b' ');
        self.time.extend_from_slice(time);
        self.clock.read(&self.time)
    }
}

impl Layout {
    fn settle(options: &Options, fields: &[u8]) -> Result<(Self, Names), Error> {
        let names: Vec<String> = fields
            .split(u8::is_ascii_whitespace)
            .filter(|name| !name.is_empty())
            .map(|name| String::from_utf8_lossy(name).into())
            .collect();
        let place = |name: &str| names.iter().position(|known| known.eq_ignore_ascii_case(name));
        let alias = |name: &str| ALIASES.iter().find(|(alias, _)| *alias == name);
        let find = |name: &str| {
            let place = place(name).or_else(|| place(alias(name)?.1))?;
            names.get(place).cloned()
        };
        let settled = Names::settle(options, find, |_| true, || names.clone())?;
        let needed = |name: &str| {
            place(name).ok_or_else(|| Error::new(ErrorKind::UnknownField, name.to_owned()))
        };
        let time = needed(&settled.time)?;
        let time = match (&options.time, place("date"), place("time")) {
            (None, Some(date), Some(time)) => Time::WithDate(date, time),
            (None, None, Some(time)) => Time::OfDay(time),
            _ => Time::Column(time),
        };
        let subject = settled.subject.as_deref();
        let subject =
            subject.map(|name| Ok((needed(name)?, Subject::for_field(name)))).transpose()?;
        let cost = settled.cost.iter().map(|cost| Ok((needed(&cost.name)?, cost.clone())));
        let cost = cost.collect::<Result<_, Error>>()?;
        Ok((Self { columns: names.len(), time, subject, cost }, settled))
    }
}

impl Parse for W3c {
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(fields) = directive(line, b"Fields") {
            self.layout = Layout::settle(&self.options, fields).map_err(Fault::Fatal)?.0;
            return Ok(None);
        }
        if let Some(date) = directive(line, b"Date") {
            let date = date.split(|&byte| byte == b' ').next().unwrap_or_default();
            self.date = String::from_utf8_lossy(date).into();
        }
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let tabs = line.contains(&b'\t');
        let values: Vec<&[u8]> = match tabs {
            true => line.split(|&byte| byte == b'\t').collect(),
            false => line.split(|&byte| byte == b' ').filter(|part| !part.is_empty()).collect(),
        };
        if values.len() != self.layout.columns {
            let (found, wanted) = (values.len(), self.layout.columns);
            return Err(Fault::malformed(format!("{found} values where #Fields has {wanted}")));
        }
        let time = self.read_time(&values)?;
        let text = |column: usize| values.get(column).copied().unwrap_or_default();
        let mut cost = CostSum::new(!self.layout.cost.is_empty());
        for (column, of) in &self.layout.cost {
            cost = cost.add(text(*column), of)?;
        }
        let subject = match &self.layout.subject {
            None => crate::trace::formats::fields::ALL,
            Some((column, subject)) => subject.within(text(*column)),
        };
        Ok(Some(Entry { time, subject, cost }))
    }
}

/// Returns the value of a directive, which is a line such as `#Name: value`.
fn directive<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.trim_ascii().strip_prefix(b"#")?;
    let (found, text) = rest.split_at_checked(name.len())?;
    let text = text.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name).then(|| text.trim_ascii_start())
}
