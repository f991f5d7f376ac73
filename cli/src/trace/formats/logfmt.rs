//! Reads logfmt: `key=value` and `key="a value"`, separated by spaces.
//!
//! ```text
//! time=2026-05-01T10:00:00Z level=info method=GET path=/ remote_ip=203.0.113.9 status=200
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::parse::{Entry, Parse};
use crate::trace::error::Error;
use crate::trace::formats::fields::{ALL, CostField, CostSum, Names, Subject};
use crate::trace::malformed::{Fault, value};
use crate::trace::options::Options;
use crate::trace::time::Clock;

/// The minimum number of pairs at the beginning of a logfmt line.
const PAIRS_MIN: usize = 2;

/// A reader of logfmt.
#[derive(Debug)]
pub(crate) struct Logfmt {
    clock: Clock,
    time: String,
    subject: Option<(String, Subject)>,
    cost: Vec<CostField>,
    /// A copy of the subject of the current line, if its escapes had to be replaced.
    owned: Vec<u8>,
}

impl Logfmt {
    /// Determines the fields from the first lines of the input.
    pub(super) fn new(options: &Options, head: &[u8]) -> Result<(Self, Names), Error> {
        let lines = || head.split(|&byte| byte == b'\n');
        let known: BTreeSet<String> =
            lines().flat_map(pairs).map(|(key, _)| String::from_utf8_lossy(key).into()).collect();
        let find = |name: &str| {
            let other_case = || known.iter().find(|key| key.eq_ignore_ascii_case(name));
            known.get(name).or_else(other_case).cloned()
        };
        let says_address = |name: &str| {
            let mut values = lines().filter_map(|line| get(line, name));
            values.any(|text| crate::trace::formats::address::address(&text).is_some())
        };
        let names = Names::settle(options, find, says_address, || known.iter().cloned().collect())?;
        let logfmt = Self {
            clock: Clock::new(options.time_unit),
            time: names.time.clone(),
            subject: names.subject.clone().map(|name| (name.clone(), Subject::for_field(&name))),
            cost: names.cost.clone(),
            owned: Vec::new(),
        };
        Ok((logfmt, names))
    }

    /// Returns `true` if a line begins with two `key=value` pairs.
    pub(super) fn recognises(line: &[u8]) -> bool {
        let mut words = line.trim_ascii().split(|&byte| byte == b' ');
        let is_pair = |word: &[u8]| {
            let equals = word.iter().position(|&byte| byte == b'=');
            let key = equals.and_then(|at| word.get(..at)).unwrap_or_default();
            !key.is_empty() && key.iter().all(is_key)
        };
        words.by_ref().take(PAIRS_MIN).filter(|word| is_pair(word)).count() == PAIRS_MIN
    }
}

fn is_key(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@' | b'/')
}

impl Parse for Logfmt {
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let needed = |name: &str| {
            let missing =
                || Fault::malformed(format!("there is no field {}", value(name.as_bytes())));
            get(line, name).ok_or_else(missing)
        };
        let time = self.clock.read(&needed(&self.time)?)?;
        let mut cost = CostSum::new(!self.cost.is_empty());
        for of in &self.cost {
            cost = cost.add(&needed(&of.name)?, of)?;
        }
        let Some((name, subject)) = &self.subject else {
            return Ok(Some(Entry { time, subject: ALL, cost }));
        };
        let text = match needed(name)? {
            Cow::Borrowed(text) => text,
            Cow::Owned(text) => {
                self.owned = text;
                &self.owned
            }
        };
        Ok(Some(Entry { time, subject: subject.within(text), cost }))
    }
}

/// Returns the value of a key. If the key is repeated, this is its first value.
fn get<'a>(line: &'a [u8], name: &str) -> Option<Cow<'a, [u8]>> {
    let (_, text) = pairs(line).find(|(key, _)| *key == name.as_bytes())?;
    Some(match text.strip_prefix(b"\"") {
        None => Cow::Borrowed(text),
        Some(inside) => {
            let inside = inside.strip_suffix(b"\"").unwrap_or(inside);
            if inside.contains(&b'\\') {
                Cow::Owned(unescaped(inside))
            } else {
                Cow::Borrowed(inside)
            }
        }
    })
}

/// Returns the `key=value` pairs of a line. Values keep their quotes. A key without a value is not
/// a pair.
fn pairs(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = line.trim_ascii();
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_ascii_start();
            let key_ends = rest.iter().position(|&byte| byte == b'=' || byte == b' ')?;
            let (key, behind) = rest.split_at_checked(key_ends)?;
            let Some(text) = behind.strip_prefix(b"=") else {
                rest = behind;
                continue;
            };
            let length = value_length(text);
            rest = text.get(length..).unwrap_or_default();
            return Some((key, text.get(..length).unwrap_or_default()));
        }
    })
}

/// Returns the length of the value at the beginning of a text, including quotes. If a quote is
/// never closed, the value extends to the end.
fn value_length(text: &[u8]) -> usize {
    let Some(inside) = text.strip_prefix(b"\"") else {
        return text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    };
    let mut escaped = false;
    for (place, &byte) in inside.iter().enumerate() {
        match byte {
            b'"' if !escaped => return place + 2,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.iter().copied();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(other) => other,
                None => b'\\',
            },
            (byte, false) => byte,
        });
    }
    found
}
