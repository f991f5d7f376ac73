//! Reads limit sets from text.

use std::fmt;
use std::str::FromStr;

use super::{LimitSet, Override, OverrideFor, print};
use crate::call::MAX_SUBJECT;
use crate::lists::{entries, split};
use crate::policy::{Policy, PolicyError, shown};
use crate::time::Timestamp;

/// The reason why a text or a limit is not valid for a [`LimitSet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSetError {
    /// The number of the line, from 1.
    line: Option<usize>,
    message: String,
}

impl LimitSetError {
    pub(super) fn new(message: String) -> Self {
        Self { line: None, message }
    }

    /// Returns the number of the wrong line, from 1. Returns `None` if the error is about a single
    /// limit.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for LimitSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for LimitSetError {}

impl FromStr for LimitSet {
    type Err = LimitSetError;

    fn from_str(text: &str) -> Result<Self, LimitSetError> {
        let mut set = Self::new();
        for (number, line) in entries(text) {
            set.add_new(line).map_err(|error| LimitSetError { line: Some(number), ..error })?;
        }
        Ok(set)
    }
}

impl LimitSet {
    /// Sets the limit of one line: see [the format](Self#the-format). It replaces the limit of the
    /// set for the same subjects. Returns the line of the replaced limit.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not valid. The set does not change.
    pub fn set_line(&mut self, line: &str) -> Result<Option<String>, LimitSetError> {
        let Line { policy, target, ends_at } = Line::parse(line, |text| self.known.parse(text))?;
        let before = self.line_of(policy.name(), target.as_ref().map(TargetBuf::as_ref));
        match target {
            None => self.set_policy(policy)?,
            Some(target) => self.set_override(policy, target.as_ref(), ends_at)?,
        }
        Ok(before)
    }

    /// Removes the limit that has the name and the subjects of `line`. The numbers of the line do
    /// not matter. Returns `false` if the set has no such limit.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not valid.
    pub fn remove_line(&mut self, line: &str) -> Result<bool, LimitSetError> {
        let Line { policy, target, .. } = Line::parse(line, |text| self.known.parse(text))?;
        Ok(match target {
            None => self.remove_policy(policy.name()),
            Some(target) => self.remove_override(policy.name(), target.as_ref()),
        })
    }

    /// Returns the key of a line: see [`lines`](Self::lines).
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not valid.
    pub fn key_of(line: &str) -> Result<String, LimitSetError> {
        let Line { policy, target, .. } = Line::parse(line, str::parse)?;
        let target = target.as_ref().map(|target| target.as_ref().target());
        Ok(print::key(policy.name(), target))
    }

    /// Returns the time at which the override of a line ends. Returns `None` for an override
    /// without an end, and for a policy.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not valid.
    pub fn end_of(line: &str) -> Result<Option<Timestamp>, LimitSetError> {
        Ok(Line::parse(line, str::parse)?.ends_at)
    }

    /// Loads an override that the set has, but [not in
    /// memory](Self#a-set-that-is-partly-in-memory), also beyond the
    /// [maximum](Self::with_max_loaded). Does nothing if the set has the override in memory, or has
    /// no such override.
    ///
    /// # Errors
    ///
    /// Returns an error if the line is not valid.
    pub(super) fn load_line(&mut self, line: &str) -> Result<(), LimitSetError> {
        let Line { policy, target, ends_at } =
            Line::parse(line, |text| self.known.find_or_parse(text))?;
        if let (Some(target), Some(limits)) = (target, self.by_name.get_mut(policy.name())) {
            limits.load(target.as_ref().target(), Override { policy, ends_at });
        }
        Ok(())
    }

    /// Adds a limit for other subjects than those of all earlier limits.
    fn add_new(&mut self, line: &str) -> Result<(), LimitSetError> {
        match self.set_line(line)? {
            None => Ok(()),
            Some(before) => Err(LimitSetError::new(format!(
                "`{}` is already in the set, for the same subjects",
                shown(&before)
            ))),
        }
    }
}

/// The parts of a line.
struct Line {
    policy: Policy,
    /// The target of an override, or `None` for a policy.
    target: Option<TargetBuf>,
    ends_at: Option<Timestamp>,
}

impl Line {
    /// Reads a line, and its policy by `parse`.
    fn parse(
        line: &str,
        parse: impl FnOnce(&str) -> Result<Policy, PolicyError>,
    ) -> Result<Self, LimitSetError> {
        let (policy, rest) = split_at_words(line, &["until", "for"]);
        let policy = parse(policy).map_err(message_of)?;
        let (ends_at, target) = match split(rest) {
            ("until", rest) => {
                let (time, rest) = split_at_words(rest, &["for"]);
                let time = parse_time(time)?;
                if rest.is_empty() {
                    let message = "an end needs `for` and a subject or a tenant after it";
                    return Err(LimitSetError::new(message.to_owned()));
                }
                (Some(time), split(rest).1)
            }
            ("for", rest) => (None, rest),
            _ => return Ok(Self { policy, target: None, ends_at: None }),
        };
        Ok(Self { policy, target: Some(TargetBuf::parse(target)?), ends_at })
    }
}

/// Splits a line at the first of `words`. The second part begins with the word.
fn split_at_words<'t>(line: &'t str, words: &[&str]) -> (&'t str, &'t str) {
    let mut rest = line;
    while !rest.is_empty() {
        if words.contains(&split(rest).0) {
            return (line[..line.len() - rest.len()].trim_end(), rest);
        }
        rest = split(rest).1;
    }
    (line, "")
}

/// Reads a time such as `2026-12-04T18:00:00Z`.
fn parse_time(text: &str) -> Result<Timestamp, LimitSetError> {
    let time = text.parse::<jiff::Timestamp>().ok();
    let micros = time.and_then(|time| u64::try_from(time.as_microsecond()).ok());
    let micros = micros.filter(|micros| Timestamp::from_micros(*micros).as_micros() == *micros);
    micros.map(Timestamp::from_micros).ok_or_else(|| {
        LimitSetError::new(format!(
            "the end `{}` is not a time such as `2026-12-04T18:00:00Z`, from 1970 to 2112",
            shown(text)
        ))
    })
}

/// The tenant and the subject of an override.
struct TargetBuf {
    tenant: Option<Vec<u8>>,
    subject: Option<Vec<u8>>,
}

impl TargetBuf {
    fn parse(text: &str) -> Result<Self, LimitSetError> {
        let (tenant, rest) = match split(text) {
            ("tenant", rest) => {
                let (tenant, rest) = match rest.starts_with('"') {
                    true => quoted(rest)?,
                    false => (split(rest).0.into(), split(rest).1),
                };
                (Some(checked("tenant", tenant)?), rest)
            }
            _ => (None, text),
        };
        let subject = match split(rest) {
            ("", _) if tenant.is_some() => None,
            ("subject", rest) => {
                let (subject, rest) = match rest.starts_with('"') {
                    true => quoted(rest)?,
                    false => (rest.into(), ""),
                };
                if !rest.is_empty() {
                    let message = format!("`{}` follows the subject in quotes", shown(rest));
                    return Err(LimitSetError::new(message));
                }
                Some(checked("subject", subject)?)
            }
            (word, _) => {
                let (before, other) = match tenant {
                    None => ("`for`", "`tenant` or "),
                    Some(_) => ("the tenant", ""),
                };
                let word = shown(word);
                let message = format!("`{word}` follows {before}; it must be {other}`subject`");
                return Err(LimitSetError::new(message));
            }
        };
        Ok(Self { tenant, subject })
    }

    fn as_ref(&self) -> OverrideFor<'_> {
        match (&self.tenant, &self.subject) {
            (Some(tenant), Some(subject)) => OverrideFor::SubjectOfTenant { tenant, subject },
            (Some(tenant), None) => OverrideFor::Tenant(tenant),
            (None, subject) => OverrideFor::Subject(subject.as_deref().unwrap_or_default()),
        }
    }
}

fn checked(part: &str, bytes: Vec<u8>) -> Result<Vec<u8>, LimitSetError> {
    if (1..=MAX_SUBJECT).contains(&bytes.len()) {
        return Ok(bytes);
    }
    let length = bytes.len();
    let message = format!("the {part} has {length} bytes; it must have 1 to {MAX_SUBJECT}");
    Err(LimitSetError::new(message))
}

/// Reads a text in double quotes. Returns its bytes, and the rest of the line.
fn quoted(text: &str) -> Result<(Vec<u8>, &str), LimitSetError> {
    let mut bytes = vec![];
    let mut chars = text.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((bytes, text[at + 1..].trim_start())),
            '\\' => {
                let byte = match chars.next().map(|(_, char)| char) {
                    Some('n') => Some(b'\n'),
                    Some('r') => Some(b'\r'),
                    Some('t') => Some(b'\t'),
                    Some(char @ ('"' | '\'' | '\\')) => u8::try_from(char).ok(),
                    Some('x') => {
                        let mut digit = || chars.next().and_then(|(_, char)| char.to_digit(16));
                        let (high, low) = (digit(), digit());
                        high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok())
                    }
                    _ => None,
                };
                bytes.push(byte.ok_or_else(|| {
                    LimitSetError::new(format!(
                        "`{}` begins with an escape that is not `\\\\`, `\\\"`, `\\'`, `\\n`, `\\r`, \
                         `\\t` or `\\xNN`",
                        shown(&text[at..])
                    ))
                })?);
            }
            char => bytes.extend(char.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Err(LimitSetError::new(format!("`{}` has no closing quote", shown(text))))
}

fn message_of(error: impl fmt::Display) -> LimitSetError {
    LimitSetError::new(error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        text.parse::<LimitSet>().unwrap_err().to_string()
    }

    #[test]
    fn lines_are_printed_as_they_are_read() {
        let text = "\
a: fixed-window 1/1m
a: fixed-window 2/1m for subject alice
a: fixed-window 3/1m until 2026-12-04T18:00:00Z for subject \"for until bob\"
a: fixed-window 4/1m for subject \"\\x00\\\"\\'\\\\\\n\\xff\"
a: fixed-window 5/1m for tenant acme
a: fixed-window 6/1m until 2026-12-04T18:00:00.000001Z for tenant acme subject alice
a: fixed-window 7/1m for tenant \"acme inc\" subject alice
a: fixed-window 8/1m for subject \"user \\x2317\"
b: sliding-log 5/15m block 1m x2 up to 1d forget 7d
";
        let set: LimitSet = text.parse().unwrap();
        assert_eq!(set.overrides(), 7);
        assert!(set.line_of("a", Some(OverrideFor::Subject(b"user #17"))).is_some());
        assert_eq!(set.policies().count(), 2);
        let mut expected: Vec<&str> = text.lines().collect();
        let printed = set.to_string();
        let mut printed: Vec<&str> = printed.lines().collect();
        expected.sort_unstable();
        printed.sort_unstable();
        assert_eq!(printed, expected);
        // Spaces, comments, and a time with an offset.
        let loose = "  # first\na:  fixed-window 3/60s   until 2026-12-04T19:00:00+01:00  for  \
                     subject  for until bob # last\n\n";
        let loose: LimitSet = loose.parse().unwrap();
        assert!(printed.contains(&loose.to_string().trim_end()));
    }

    #[test]
    fn an_error_names_the_line_the_value_and_the_bound() {
        for (text, message) in [
            (
                "\nfixed-window 1/1m for subject a",
                "line 2: the policy `fixed-window 1/1m` has no name; a set needs the name of the \
                 policy to replace, as in `plan: fixed-window 1/1m`",
            ),
            (
                "a: gcra 1/s\na: gcra 2/s",
                "line 2: `a: gcra 1/1s burst 1` is already in the set, for the same subjects",
            ),
            (
                "a: gcra 1/s for tenant t subject x\na: gcra 2/s for tenant t subject \"x\"",
                "line 2: `a: gcra 1/1s burst 1 for tenant t subject x` is already in the set, for \
                 the same subjects",
            ),
            (
                "a: gcra 1/s until tomorrow for subject x",
                "line 1: the end `tomorrow` is not a time such as `2026-12-04T18:00:00Z`, from \
                 1970 to 2112",
            ),
            (
                "a: gcra 1/s until 2113-01-01T00:00:00Z for subject x",
                "line 1: the end `2113-01-01T00:00:00Z` is not a time such as \
                 `2026-12-04T18:00:00Z`, from 1970 to 2112",
            ),
            (
                "a: gcra 1/s until 2026-12-04T18:00:00Z",
                "line 1: an end needs `for` and a subject or a tenant after it",
            ),
            (
                "a: gcra 1/s for alice",
                "line 1: `alice` follows `for`; it must be `tenant` or `subject`",
            ),
            (
                "a: gcra 1/s for tenant t user x",
                "line 1: `user` follows the tenant; it must be `subject`",
            ),
            (
                "a: gcra 1/s for subject",
                "line 1: the subject has 0 bytes; it must have 1 to 1048576",
            ),
            (
                "a: gcra 1/s for tenant \"\"",
                "line 1: the tenant has 0 bytes; it must have 1 to 1048576",
            ),
            ("a: gcra 1/s for subject \"a\" b", "line 1: `b` follows the subject in quotes"),
            ("a: gcra 1/s for subject \"a", "line 1: `\"a` has no closing quote"),
            (
                "a: gcra 1/s for subject \"a\\q\"",
                "line 1: `\\q\"` begins with an escape that is not `\\\\`, `\\\"`, `\\'`, `\\n`, \
                 `\\r`, `\\t` or `\\xNN`",
            ),
        ] {
            assert_eq!(error(text), message);
        }
        assert!(error("a: gcra 0/s for subject x").starts_with("line 1: "));
        assert!(error("for subject x").starts_with("line 1: "));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_they_are_printed(
            tenant in prop::collection::vec(any::<u8>(), 1..8),
            subject in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            let policy: Policy = "a: gcra 1/s".parse().unwrap();
            let mut set = LimitSet::new();
            for target in [
                OverrideFor::Tenant(&tenant),
                OverrideFor::Subject(&subject),
                OverrideFor::SubjectOfTenant { tenant: &tenant, subject: &subject },
            ] {
                set.set_override(policy.clone(), target, None).unwrap();
            }
            prop_assert_eq!(set.to_string().parse::<LimitSet>().unwrap(), set);
        }

        #[test]
        fn no_text_panics(text in "(a: gcra 1/s )?(until|for|subject|tenant|\"|\\\\x|é|#| |\n){0,8}") {
            let _ = text.parse::<LimitSet>();
        }
    }
}
