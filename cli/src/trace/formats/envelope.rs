//! Removes envelopes: the text that containers, syslog and the journal write around each line of a
//! program.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::bytes::Regex;
use smallvec::smallvec;

use super::json_object::{Values, values};
use super::parse::{Entry, Parse, beginning};
use crate::trace::input::lines::LINE_MAX;
use crate::trace::malformed::Fault;

/// The text around each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// Docker's `json-file`: `{"log":"…\n","stream":"stdout","time":"…"}`.
    Docker,
    /// The container runtime interface of Kubernetes: `2026-05-01T10:00:00.0Z stdout F …`.
    Cri,
    /// `docker compose logs`: `web-1  | …`.
    Compose,
    /// `journalctl -o json`: `{"MESSAGE":"…","__REALTIME_TIMESTAMP":"1777629600000000",…}`.
    Journal,
    /// Syslog as in RFC 5424: `<134>1 2026-05-01T10:00:00Z host app 12 - - …`.
    Syslog5424,
    /// Syslog as in RFC 3164, also with a time as in RFC 3339: `May  1 10:00:00 host app[12]: …`.
    Syslog3164,
}

/// The fields of Docker's JSON objects that contain the line and its time.
const DOCKER_FIELDS: [&str; 2] = ["log", "time"];

/// The fields of the JSON objects of the journal that contain the line and its time. The time is in
/// microseconds since 1970.
const JOURNAL_FIELDS: [&str; 2] = ["MESSAGE", "__REALTIME_TIMESTAMP"];

/// The maximum length of a piece of a line. Docker splits a longer line into pieces, and only the
/// last piece ends with a newline.
const DOCKER_PIECE: usize = 16 << 10;

/// The patterns of the envelopes that precede the line. The group `time` is the time of the line.
/// If the group `part` is `P`, the line continues in the next envelope.
const BEGINNINGS: [(Envelope, &str); 4] = [
    (Envelope::Cri, r"^(?<time>\d{4}-\d\d-\d\dT\S+) (?:stdout|stderr) (?<part>[PF])(?: |$)"),
    (Envelope::Compose, r"^[\w.-]+ +\| ?"),
    (
        Envelope::Syslog5424,
        r#"^<\d{1,3}>1 (?<time>\S+) \S+ \S+ \S+ \S+ (?:-|(?:\[(?:[^"\]]|"(?:[^"\\]|\\.)*")*\])+)(?: \x{FEFF}?|$)"#,
    ),
    (
        Envelope::Syslog3164,
        r"^(?:<\d{1,3}>)?(?<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) [\w.:-]+ [\w./-]+(?:\[\d+\])?: ?",
    ),
];

/// The compiled patterns of [`BEGINNINGS`]. A test checks that all of them compile.
static PREFIXES: LazyLock<Vec<(Envelope, Regex)>> = LazyLock::new(|| {
    let compiled = |(envelope, text): &(Envelope, &str)| Some((*envelope, Regex::new(text).ok()?));
    BEGINNINGS.iter().filter_map(compiled).collect()
});

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Docker => "docker",
            Self::Cri => "cri",
            Self::Compose => "compose",
            Self::Journal => "journal",
            Self::Syslog5424 | Self::Syslog3164 => "syslog",
        })
    }
}

/// The contents of an envelope.
struct Opened<'a> {
    text: Cow<'a, [u8]>,
    /// Whether the next envelope continues the line.
    is_part: bool,
    /// The time of the envelope; empty if it has none.
    time: Cow<'a, [u8]>,
}

/// Removes the envelopes of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opener {
    pub(super) envelope: Envelope,
    /// Whether the time of the envelope is added to each line as a field, because the lines
    /// themselves have no time.
    pub(super) adds_time: bool,
}

impl Envelope {
    /// Returns the envelopes whose form this line has.
    pub(super) fn candidates(line: &[u8]) -> impl Iterator<Item = Self> {
        let journal = journal(line).map(|_| Self::Journal);
        let docker = docker(line).map(|_| Self::Docker);
        let prefixed = PREFIXES.iter().filter(|(_, prefix)| prefix.is_match(beginning(line)));
        journal.into_iter().chain(docker).chain(prefixed.map(|(envelope, _)| *envelope))
    }

    fn open(self, line: &[u8]) -> Option<Opened<'_>> {
        match self {
            Self::Docker => return docker(line),
            Self::Journal => return journal(line),
            _ => {}
        }
        let (_, prefix) = PREFIXES.iter().find(|(envelope, _)| *envelope == self)?;
        let found = prefix.captures(line)?;
        let group = |name: &str| found.name(name).map_or(&b""[..], |group| group.as_bytes());
        Some(Opened {
            text: Cow::Borrowed(line.get(found.get(0)?.end()..)?),
            is_part: group("part") == b"P",
            time: Cow::Borrowed(group("time")),
        })
    }
}

impl Opener {
    /// Removes this envelope from all lines of a text. Lines without the envelope do not change.
    pub(super) fn open_all(self, text: &[u8]) -> Vec<u8> {
        let mut opened = Vec::with_capacity(text.len());
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            match self.envelope.open(line) {
                Some(Opened { text, is_part, time }) => {
                    self.begin(&mut opened, &text, &time);
                    if !is_part {
                        opened.push(b'\n');
                    }
                }
                None => {
                    opened.extend_from_slice(line);
                    opened.push(b'\n');
                }
            }
        }
        opened
    }

    /// Appends the content of the first envelope of a line. If lines have no time of their own, the
    /// time of the envelope becomes the first field of the JSON or logfmt.
    fn begin(self, line: &mut Vec<u8>, text: &[u8], time: &[u8]) {
        // A valid time contains no quotes or backslashes, which would need escapes in JSON.
        let has_time = !time.is_empty() && !time.iter().any(|byte| matches!(byte, b'"' | b'\\'));
        let fields = text.trim_ascii_start().strip_prefix(b"{");
        match (self.adds_time && has_time, fields) {
            (false, _) => line.extend_from_slice(text),
            (true, Some(fields)) => {
                for part in [&b"{\"time\":\""[..], time, b"\",", fields] {
                    line.extend_from_slice(part);
                }
            }
            (true, None) => {
                for part in [&b"time=\""[..], time, b"\" ", text] {
                    line.extend_from_slice(part);
                }
            }
        }
    }
}

/// Returns the values of two fields of a JSON object without decoding them. Returns `None` if the
/// first field does not exist, and an empty string for a missing second field.
fn pair<'a>(line: &'a [u8], names: [&str; 2]) -> Option<(&'a str, &'a str)> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let mut found: Values<'_> = smallvec![None; 2];
    values(line, &names.map(str::to_owned), &mut found).ok()?;
    Some((found.first().copied().flatten()?, found.get(1).copied().flatten().unwrap_or("\"\"")))
}

fn docker(line: &[u8]) -> Option<Opened<'_>> {
    let (text, time) = pair(line, DOCKER_FIELDS)?;
    let text: String = serde_json::from_str(text).ok()?;
    let time: String = serde_json::from_str(time).unwrap_or_default();
    let is_part = !text.ends_with('\n') && text.len() >= DOCKER_PIECE;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Some(Opened { text: Cow::Owned(text.into()), is_part, time: Cow::Owned(time.into()) })
}

/// Reads a line and its time from a JSON object of the journal. The journal writes a message that
/// is not UTF-8 as an array of bytes.
fn journal(line: &[u8]) -> Option<Opened<'_>> {
    let (text, time) = pair(line, JOURNAL_FIELDS)?;
    let text: Vec<u8> = match serde_json::from_str::<String>(text) {
        Ok(text) => text.into(),
        Err(_) => serde_json::from_str(text).ok()?,
    };
    let micros: String = serde_json::from_str(time).ok()?;
    let time = Timestamp::from_microsecond(micros.parse().ok()?).ok()?.to_string();
    Some(Opened { text: Cow::Owned(text), is_part: false, time: Cow::Owned(time.into()) })
}

/// A reader of lines in envelopes.
pub(crate) struct Enveloped<P> {
    opener: Opener,
    inner: P,
    /// A buffer for the current line without its envelopes. A line is copied into the buffer if it
    /// cannot be parsed in place, for example because it is split over several envelopes.
    line: Vec<u8>,
    /// Whether `line` is incomplete: the next envelope continues the line.
    waits: bool,
}

impl<P> Enveloped<P> {
    pub(super) fn new(opener: Opener, inner: P) -> Self {
        Self { opener, inner, line: Vec::new(), waits: false }
    }
}

impl<P: Parse> Parse for Enveloped<P> {
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(Opened { text, is_part, time }) = self.opener.envelope.open(line) else {
            return self.inner.parse(line);
        };
        if !self.waits {
            self.line.clear();
        }
        if self.line.len() + text.len() > LINE_MAX {
            self.waits = false;
            let reason = format!("its parts are longer than {} MiB together", LINE_MAX >> 20);
            return Err(Fault::malformed(reason));
        }
        match text {
            Cow::Borrowed(text) if !self.waits && !is_part && !self.opener.adds_time => {
                return self.inner.parse(text);
            }
            text if self.waits => self.line.extend_from_slice(&text),
            text => self.opener.begin(&mut self.line, &text, &time),
        }
        self.waits = is_part;
        if is_part { Ok(None) } else { self.inner.parse(&self.line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefixes_are_valid() {
        assert_eq!(PREFIXES.len(), BEGINNINGS.len());
    }
}
