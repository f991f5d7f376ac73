//! Reads JSON with one object per line. The module `json_layout` converts other JSON to such lines.
//!
//! The name of a field is its key. For a key inside an object, the name is `object.key`. If the key
//! itself contains a dot, the name is the whole key. Numbers are parsed without floating-point
//! numbers. The reader skips fields that are not needed without decoding them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use smallvec::{SmallVec, smallvec};

use super::json_object::{Values, keys, values};
use super::parse::{Entry, Parse};
use crate::trace::error::Error;
use crate::trace::formats::address::address;
use crate::trace::formats::fields::{ALL, CostField, CostSum, Names, Subject};
use crate::trace::malformed::{Fault, value};
use crate::trace::options::Options;
use crate::trace::time::Clock;

/// A reader of JSON lines.
#[derive(Debug)]
pub(crate) struct JsonLines {
    clock: Clock,
    /// The names of the needed fields: the time, the subject if there is one, and the costs.
    wanted: Vec<String>,
    subject_is: Option<Subject>,
    cost: Vec<CostField>,
    /// A copy of the subject of the current line, if its escapes had to be decoded.
    subject: String,
}

impl JsonLines {
    /// Determines the fields from the first lines of the input.
    pub(super) fn new(options: &Options, head: &[u8]) -> Result<(Self, Names), Error> {
        let mut known = BTreeSet::new();
        for line in head.split(|&byte| byte == b'\n') {
            keys(line, &mut known);
        }
        let find = |name: &str| {
            let other_case = || known.iter().find(|key| key.eq_ignore_ascii_case(name));
            known.get(name).or_else(other_case).cloned()
        };
        let says_address = |name: &str| {
            let wanted = [name.to_owned()];
            head.split(|&byte| byte == b'\n').any(|line| {
                let mut found: Values<'_> = smallvec![None];
                let is_object = values(line, &wanted, &mut found).is_ok();
                let text = scalar(name, found.first().copied().flatten());
                is_object && text.is_ok_and(|text| address(text.as_bytes()).is_some())
            })
        };
        let names = Names::settle(options, find, says_address, || known.iter().cloned().collect())?;
        let mut wanted = vec![names.time.clone()];
        wanted.extend(names.subject.clone());
        wanted.extend(names.cost.iter().map(|cost| cost.name.clone()));
        let json = Self {
            clock: Clock::new(options.time_unit),
            wanted,
            subject_is: names.subject.as_deref().map(Subject::for_field),
            cost: names.cost.clone(),
            subject: String::new(),
        };
        Ok((json, names))
    }

    /// Returns `true` if a line looks like a JSON object.
    pub(super) fn recognises(line: &[u8]) -> bool {
        let inside = line.trim_ascii().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
        matches!(inside, Some([b'"' | b'}', ..]))
    }
}

impl Parse for JsonLines {
    fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, Fault> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let mut found: Values<'a> = smallvec![None; self.wanted.len()];
        values(line, &self.wanted, &mut found)
            .map_err(|error| Fault::malformed(format!("this is not a JSON object: {error}")))?;

        let mut texts: SmallVec<[Cow<'a, str>; 4]> = SmallVec::new();
        for (name, found) in self.wanted.iter().zip(found) {
            texts.push(scalar(name, found)?);
        }
        let mut named = self.wanted.iter().zip(texts);
        let time = match named.next() {
            Some((_, text)) => self.clock.read(text.as_bytes())?,
            None => return Ok(None),
        };
        let subject = self.subject_is.and_then(|subject| Some((subject, named.next()?.1)));
        let mut cost = CostSum::new(!self.cost.is_empty());
        for (of, (_, text)) in self.cost.iter().zip(named) {
            cost = cost.add(text.as_bytes(), of)?;
        }
        let subject = match subject {
            None => ALL,
            Some((subject, Cow::Borrowed(text))) => subject.within(text.as_bytes()),
            Some((subject, Cow::Owned(text))) => {
                self.subject = text;
                subject.within(self.subject.as_bytes())
            }
        };
        Ok(Some(Entry { time, subject, cost }))
    }
}

/// Returns the content of a string without its quotes and escapes, or the text of a number or of a
/// truth value.
fn scalar<'a>(name: &str, found: Option<&'a str>) -> Result<Cow<'a, str>, Fault> {
    let Some(text) = found else {
        return Err(Fault::malformed(format!("there is no field `{name}`")));
    };
    match text.as_bytes() {
        [b'"', inside @ .., b'"'] if !inside.contains(&b'\\') => {
            Ok(Cow::Borrowed(text.get(1..text.len() - 1).unwrap_or_default()))
        }
        [b'"', ..] => serde_json::from_str(text)
            .map(Cow::Owned)
            .map_err(|error| Fault::malformed(format!("`{name}` is not a valid string: {error}"))),
        [b'{' | b'[', ..] | b"null" => {
            let text = value(text.as_bytes());
            Err(Fault::malformed(format!("`{name}` is {text}, not a string or a number")))
        }
        _ => Ok(Cow::Borrowed(text)),
    }
}
