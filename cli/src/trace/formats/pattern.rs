//! Parses lines by a regular expression: a pattern of the user, or one of the patterns in
//! [`KNOWN`].
//!
//! Each named group of a pattern is a field with the name of the group.

use std::sync::LazyLock;

use regex::bytes::{CaptureLocations, Regex};

use super::parse::{Entry, Parse, beginning};
use crate::trace::error::{Error, ErrorKind};
use crate::trace::formats::fields::{ALL, CostField, CostSum, Names, Subject};
use crate::trace::malformed::Fault;
use crate::trace::options::{Format, Options, Pattern};
use crate::trace::time::Clock;

/// The formats that are detected by a pattern. The first matching pattern is used.
const KNOWN: &[(Format, &str)] = &[
    // A line of an Application Load Balancer of AWS:
    // https 2026-05-01T10:00:00.1Z app/name/id 203.0.113.9:2817 10.0.0.1:80 0.0 0.0 0.0 200 200 34 366 "GET …" "agent" …
    (
        Format::Alb,
        r#"^(?:https?|h2|grpcs|wss?) (?<time>\d{4}-\S+) (?<elb>\S+) (?<ip>\S+) (?<target>\S+) \S+ \S+ \S+ (?<status>\S+) (?<target_status>\S+) (?<received_bytes>\S+) (?<bytes>\S+) "(?<request>(?<method>[^ "]*) (?<path>[^ "]*)[^"]*)"(?: "(?<agent>[^"]*)")?"#,
    ),
    // A line of a Classic Load Balancer of AWS:
    // 2026-05-01T10:00:00.1Z name 203.0.113.9:2817 10.0.0.1:80 0.0 0.0 0.0 200 200 0 29 "GET …" "agent" …
    (
        Format::Elb,
        r#"^(?<time>\d{4}-\S+) (?<elb>\S+) (?<ip>\S+:\d+) (?<target>\S+) -?[\d.]+ -?[\d.]+ -?[\d.]+ (?<status>\d+|-) (?<target_status>\d+|-) (?<received_bytes>\d+) (?<bytes>\d+) "(?<request>(?<method>[^ "]*) (?<path>[^ "]*)[^"]*)"(?: "(?<agent>[^"]*)")?"#,
    ),
    // A line of HAProxy with `option httplog`:
    // 203.0.113.9:1234 [01/May/2026:10:00:00.123] frontend backend/server 0/0/1/2/3 200 512 - - ---- 1/1/1/1/0 0/0 "GET …"
    (
        Format::HaProxy,
        r#"^(?<ip>\S+):\d+ \[(?<time>[^\]]+)\] (?<frontend>\S+) (?<backend>[^ /]+)/(?<server>\S+) [\d/+-]+ (?<status>-?\d+) \+?(?<bytes>\d+) \S+ \S+ (?<flags>\S{4}) [\d/+]+ \d+/\d+(?: \{[^}]*\}){0,2} "(?<request>(?<method>[^ "]*)(?: (?<path>[^ "]*))?.*)""#,
    ),
    // A line of HAProxy with `option tcplog`:
    // 203.0.113.9:1234 [01/May/2026:10:00:00.123] frontend backend/server 1/0/5007 212 -- 1/1/1/1/0 0/0
    (
        Format::HaProxy,
        r"^(?<ip>\S+):\d+ \[(?<time>[^\]]+)\] (?<frontend>\S+) (?<backend>[^ /]+)/(?<server>\S+) [\d/+-]+ \+?(?<bytes>\d+) (?<flags>\S{2}) [\d/+]+ \d+/\d+",
    ),
    // Envoy does not escape the quotes in header fields of a client. If further quotes follow the
    // known fields, a client has possibly forged the fields after its own, so the line does not match.
    //
    // The format of Istio. It differs from the default format of Envoy: a reason follows the
    // status, and the address of the client is at the end.
    (
        Format::Envoy,
        r#"^\[(?<time>[^\]]+)\] "(?<request>(?<method>[^ "]*) (?<path>[^ "]*)[^"]*)" (?<status>\d+|-) \S+ \S+ \S+ "[^"]*" (?<received_bytes>\d+|-) (?<bytes>\d+|-) (?<duration>\d+|-) \S+ "(?<forwarded>[^"]*)" "(?<agent>[^"]*)" "(?<request_id>[^"]*)" "(?<authority>[^"]*)" "(?<upstream>[^"]*)" \S+ \S+ \S+ (?<ip>\S+)(?: [^"]*)?$"#,
    ),
    // A line of Envoy in its default format:
    // [2026-05-01T10:00:00.1Z] "GET / HTTP/2" 200 - 0 226 100 99 "203.0.113.9" "agent" "id" "authority" "10.0.0.1:80"
    (
        Format::Envoy,
        r#"^\[(?<time>[^\]]+)\] "(?<request>(?<method>[^ "]*) (?<path>[^ "]*)[^"]*)" (?<status>\d+|-) \S+ (?<received_bytes>\d+|-) (?<bytes>\d+|-) (?<duration>\d+|-) \S+ "(?<forwarded>[^"]*)" "(?<agent>[^"]*)" "(?<request_id>[^"]*)" "(?<authority>[^"]*)" "(?<upstream>[^"]*)"(?: [^"]*)?$"#,
    ),
];

/// The compiled patterns of [`KNOWN`]. A test checks that all of them compile.
static COMPILED: LazyLock<Vec<(Format, Regex)>> = LazyLock::new(|| {
    KNOWN.iter().filter_map(|(format, text)| Some((*format, Regex::new(text).ok()?))).collect()
});

/// A reader of lines that match a regular expression.
#[derive(Debug)]
pub(crate) struct Matched {
    regex: Regex,
    groups: CaptureLocations,
    clock: Clock,
    time: usize,
    subject: Option<(usize, Subject)>,
    cost: Vec<(usize, CostField)>,
}

impl Matched {
    /// Returns a reader for a format with a known pattern. If a format has several patterns, the
    /// reader uses the pattern of the first matching line.
    pub(super) fn known(
        format: Format,
        options: &Options,
        head: &[u8],
    ) -> Result<(Self, Names), Error> {
        let mut lines = head.split(|&byte| byte == b'\n');
        let found = lines.find_map(|line| known(line).filter(|(found, _)| *found == format));
        let first = || COMPILED.iter().find(|(known, _)| *known == format);
        let Some((_, regex)) = found.or_else(first) else {
            let message = format!("`{format}` is not known by a pattern");
            return Err(Error::new(ErrorKind::UnknownFormat, message));
        };
        Self::new(regex.clone(), options)
    }

    /// Returns the reader of lines that match a pattern of the user.
    pub(super) fn given(pattern: &Pattern, options: &Options) -> Result<(Self, Names), Error> {
        let cost = pattern.cost(&options.cost, &options.late_cost);
        Self::new(pattern.regex().clone(), &Options { cost, ..options.clone() })
    }

    fn new(regex: Regex, options: &Options) -> Result<(Self, Names), Error> {
        let names: Vec<Option<&str>> = regex.capture_names().collect();
        let place = |name: &str| names.iter().position(|known| *known == Some(name));
        let find = |name: &str| place(name).map(|_| name.to_owned());
        let known = || names.iter().flatten().map(|&name| name.to_owned()).collect();
        let settled = Names::settle(options, find, |_| true, known)?;
        // Group 0 is the whole line. It has no name.
        let group = |name: &str| place(name).unwrap_or(0);
        let subject = settled.subject.as_deref();
        let this = Self {
            groups: regex.capture_locations(),
            clock: Clock::new(options.time_unit),
            time: group(&settled.time),
            subject: subject.map(|name| (group(name), Subject::for_field(name))),
            cost: settled.cost.iter().map(|cost| (group(&cost.name), cost.clone())).collect(),
            regex,
        };
        Ok((this, settled))
    }

    /// Returns the format of a line that matches a known pattern.
    pub(super) fn recognises(line: &[u8]) -> Option<Format> {
        known(line.trim_ascii_end()).map(|(format, _)| *format)
    }
}

fn known(line: &[u8]) -> Option<&'static (Format, Regex)> {
    COMPILED.iter().find(|(_, regex)| regex.is_match(beginning(line)))
}

impl Parse for Matched {
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let Self { regex, groups, clock, time, subject, cost } = self;
        if regex.captures_read(groups, line).is_none() {
            return Err(Fault::malformed("the line does not fit the pattern"));
        }
        let text = |group: usize| {
            let (from, to) = groups.get(group).unwrap_or_default();
            line.get(from..to).unwrap_or_default()
        };
        let time = clock.read(text(*time))?;
        let mut sum = CostSum::new(!cost.is_empty());
        for (group, of) in cost {
            sum = sum.add(text(*group), of)?;
        }
        let subject = match subject {
            None => ALL,
            Some((group, subject)) => subject.within(text(*group)),
        };
        Ok(Some(Entry { time, subject, cost: sum }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_patterns_are_valid_and_name_what_is_needed() {
        assert_eq!(COMPILED.len(), KNOWN.len());
        for (format, regex) in COMPILED.iter() {
            let names: Vec<&str> = regex.capture_names().flatten().collect();
            assert!(names.contains(&"time") && names.contains(&"bytes"), "{format}");
            assert!(names.contains(&"ip") || names.contains(&"forwarded"), "{format}");
        }
    }
}
