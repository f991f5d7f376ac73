//! Reads the access logs of Apache and nginx: the common and the combined format.
//!
//! ```text
//! 203.0.113.9 - alice [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5120 "-" "curl/8"
//! ```
//!
//! A line is valid if its address, time, request, status and bytes are complete. The reader parses
//! the fields after the bytes only if the options need them, so that it accepts additional fields,
//! and a last quote that is never closed. Other words can precede the address, such as a virtual
//! host, an id or a level. The reader detects the address by its form.

use super::log_line::{FIELDS, Field, field, take_apart};
use super::parse::{Entry, Parse};
use crate::trace::error::Error;
use crate::trace::formats::fields::{ALL, CostField, CostSum, Names, no_subject};
use crate::trace::malformed::Fault;
use crate::trace::options::Options;
use crate::trace::time::Clock;

/// The maximum number of lines in which the reader searches for an address.
const LINES: usize = 100;

/// A reader of access logs.
#[derive(Debug)]
pub(crate) struct AccessLog {
    clock: Clock,
    subject: Option<Field>,
    cost: Vec<(Field, CostField)>,
}

impl AccessLog {
    /// Determines the fields to read. Returns an error if the subject is the address, but none of
    /// the first lines has an address.
    pub(super) fn new(options: &Options, head: &[u8]) -> Result<(Self, Names), Error> {
        let find = |name: &str| field(name).map(|_| name.to_owned());
        let known = || FIELDS.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
        let names = Names::settle(options, find, |_| true, known)?;
        if names.subject.as_deref() == Some("ip") && has_no_address(head) {
            return Err(no_subject("an address, as there is none before the time", &known()));
        }
        let costs = names.cost.iter().filter_map(|cost| Some((field(&cost.name)?, cost.clone())));
        let log = Self {
            clock: Clock::new(options.time_unit),
            subject: names.subject.as_deref().and_then(field),
            cost: costs.collect(),
        };
        Ok((log, names))
    }

    /// Returns `true` if a line looks like a line of an access log.
    pub(super) fn recognises(line: &[u8]) -> bool {
        let mut clock = Clock::new(None);
        take_apart(line.trim_ascii_end(), &mut clock).is_ok()
    }
}

/// Returns `true` if at least one of the first lines is a line of an access log, but no such line
/// has an address.
fn has_no_address(head: &[u8]) -> bool {
    let mut clock = Clock::new(None);
    let lines = head.split(|&byte| byte == b'\n').take(LINES);
    let mut parts = lines
        .filter_map(|line| take_apart(line.trim_ascii_end(), &mut clock).ok())
        .map(|parts| parts.ip.is_empty())
        .peekable();
    parts.peek().is_some() && parts.all(|is_empty| is_empty)
}

impl Parse for AccessLog {
    #[inline]
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return Ok(None);
        }
        let parts = take_apart(line, &mut self.clock)?;
        let subject = match self.subject {
            None => ALL,
            Some(Field::Ip) => parts.ip,
            Some(field) => parts.field(field),
        };
        let mut cost = CostSum::new(!self.cost.is_empty());
        for (field, of) in &self.cost {
            cost = cost.add(parts.field(*field), of)?;
        }
        Ok(Some(Entry { time: parts.micros, subject, cost }))
    }
}
