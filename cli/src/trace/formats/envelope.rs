//! What collects logs and puts something around each line of a program: containers and syslog.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use regex::bytes::Regex;
use smallvec::smallvec;

use super::json_object::{Values, values};
use super::parse::{Entry, Parse, beginning};
use crate::trace::input::lines::LINE_MAX;
use crate::trace::malformed::Fault;

/// What is around each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// Docker's `json-file`: `{"log":"…\n","stream":"stdout","time":"…"}`.
    Docker,
    /// The container runtime interface of Kubernetes: `2026-05-01T10:00:00.0Z stdout F …`.
    Cri,
    /// `docker compose logs`: `web-1  | …`.
    Compose,
    /// Syslog as in RFC 5424: `<134>1 2026-05-01T10:00:00Z host app 12 - - …`.
    Syslog5424,
    /// Syslog as in RFC 3164, also with a time as in RFC 3339: `May  1 10:00:00 host app[12]: …`.
    Syslog3164,
}

/// The field of Docker's objects that holds the line.
const DOCKER_FIELD: &str = "log";

/// Docker cuts lines that are longer than this, and gives the pieces no newline.
const DOCKER_PIECE: usize = 16 << 10;

/// How each begins. The group is `P` where the line goes on in the next one.
const BEGINNINGS: [(Envelope, &str); 4] = [
    (Envelope::Cri, r"^\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) ([PF])(?: |$)"),
    (Envelope::Compose, r"^[\w.-]+ +\| ?"),
    (
        Envelope::Syslog5424,
        r#"^<\d{1,3}>1 \S+ \S+ \S+ \S+ \S+ (?:-|(?:\[(?:[^"\]]|"(?:[^"\\]|\\.)*")*\])+)(?: \x{FEFF}?|$)"#,
    ),
    (
        Envelope::Syslog3164,
        r"^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) [\w.:-]+ [\w./-]+(?:\[\d+\])?: ?",
    ),
];

/// The same, compiled. All of them are: the tests say so.
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
            Self::Syslog5424 | Self::Syslog3164 => "syslog",
        })
    }
}

/// What is within an envelope.
struct Opened<'a> {
    text: Cow<'a, [u8]>,
    /// Whether the line goes on in the next envelope.
    is_part: bool,
}

impl Envelope {
    /// The envelopes that a line may be in.
    pub(super) fn candidates(line: &[u8]) -> impl Iterator<Item = Self> {
        let docker = docker(line).map(|_| Self::Docker);
        let prefixed = PREFIXES.iter().filter(|(_, prefix)| prefix.is_match(beginning(line)));
        docker.into_iter().chain(prefixed.map(|(envelope, _)| *envelope))
    }

    /// The lines within these envelopes; those that are in none stay as they are.
    pub(super) fn open_all(self, text: &[u8]) -> Vec<u8> {
        let mut opened = Vec::with_capacity(text.len());
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            match self.open(line) {
                Some(Opened { text, is_part }) => {
                    opened.extend_from_slice(&text);
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

    fn open(self, line: &[u8]) -> Option<Opened<'_>> {
        if self == Self::Docker {
            return docker(line);
        }
        let (_, prefix) = PREFIXES.iter().find(|(envelope, _)| *envelope == self)?;
        let (is_part, end) = match prefix.captures(line)? {
            found if found.len() > 1 => (found.get(1)?.as_bytes() == b"P", found.get(0)?.end()),
            found => (false, found.get(0)?.end()),
        };
        Some(Opened { text: Cow::Borrowed(line.get(end..)?), is_part })
    }
}

fn docker(line: &[u8]) -> Option<Opened<'_>> {
    let mut found: Values<'_> = smallvec![None];
    if !line.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    values(line, &[DOCKER_FIELD.to_owned()], &mut found).ok()?;
    let text: String = serde_json::from_str(found.first().copied().flatten()?).ok()?;
    let is_part = !text.ends_with('\n') && text.len() >= DOCKER_PIECE;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Some(Opened { text: Cow::Owned(text.into()), is_part })
}

/// Reads lines that are in envelopes.
pub(crate) struct Enveloped<P> {
    envelope: Envelope,
    inner: P,
    /// The line within, where it is not in the line as it is: put together from its parts.
    line: Vec<u8>,
    /// Whether `line` waits for its last part.
    waits: bool,
}

impl<P> Enveloped<P> {
    pub(super) fn new(envelope: Envelope, inner: P) -> Self {
        Self { envelope, inner, line: Vec::new(), waits: false }
    }
}

impl<P: Parse> Parse for Enveloped<P> {
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(Opened { text, is_part }) = self.envelope.open(line) else {
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
            Cow::Borrowed(text) if !self.waits && !is_part => return self.inner.parse(text),
            text => self.line.extend_from_slice(&text),
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
