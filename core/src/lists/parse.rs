//! Reads lists from text.

use std::fmt;
use std::str::FromStr;

use super::{ListAction, Lists};
use crate::call::MAX_SUBJECT;
use crate::policy::shown;

/// The reason why a text is not valid as [`Lists`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListError {
    /// The number of the line, from 1.
    line: Option<usize>,
    message: String,
}

impl ListError {
    pub(super) fn new(message: String) -> Self {
        Self { line: None, message }
    }

    /// Returns the number of the wrong line, from 1. Returns `None` if the error is about a single
    /// entry.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ListError {}

/// Reads one entry per line: `allow` or `deny`, and then an address, a prefix, or `subject` and the
/// subject. Spaces at the ends of a line are ignored. A `#` at the start of a line, or after a
/// space, begins a comment.
impl FromStr for Lists {
    type Err = ListError;

    fn from_str(text: &str) -> Result<Self, ListError> {
        let mut lists = Self::new();
        for (number, line) in entries(text) {
            lists = with_entry(lists, line)
                .map_err(|error| ListError { line: Some(number), ..error })?;
        }
        Ok(lists)
    }
}

/// Returns the lines that are not empty, without comments and spaces at their ends. Each line has
/// its number, from 1.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(|line| without_comment(line).trim());
    (1..).zip(lines).filter(|(_, line)| !line.is_empty())
}

fn without_comment(line: &str) -> &str {
    let is_start = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices('#').find(|(at, _)| is_start(*at)).map_or(line, |(at, _)| &line[..at])
}

fn with_entry(lists: Lists, line: &str) -> Result<Lists, ListError> {
    let (word, rest) = split(line);
    let action = match word {
        "allow" => ListAction::Allow,
        "deny" => ListAction::Deny,
        _ => {
            let word = shown(word);
            let message = format!("an entry begins with `{word}`; it must be `allow` or `deny`");
            return Err(ListError::new(message));
        }
    };
    match split(rest) {
        ("subject", subject) if (1..=MAX_SUBJECT).contains(&subject.len()) => {
            Ok(lists.subject(action, subject))
        }
        ("subject", subject) => Err(ListError::new(format!(
            "the subject has {} bytes; it must have 1 to {MAX_SUBJECT}",
            subject.len()
        ))),
        _ => lists.prefix(action, rest),
    }
}

/// Returns the first word of a text, and the rest of the text.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_empty_lines_and_spaces_are_ignored() {
        let text = "# a\n\n  deny\t10.0.0.0/8 # the net\r\nallow subject a #b\nallow subject a#b c";
        let lists: Lists = text.parse().unwrap();
        assert_eq!(lists.len(), 3);
        assert_eq!(lists.find(b"10.1.2.3"), Some(ListAction::Deny));
        assert_eq!(lists.find(b"a"), Some(ListAction::Allow));
        assert_eq!(lists.find(b"a#b c"), Some(ListAction::Allow));
    }

    #[test]
    fn an_error_names_the_line_the_value_and_the_bound() {
        for (text, message) in [
            ("x 1.2.3.4", "line 1: an entry begins with `x`; it must be `allow` or `deny`"),
            (
                "deny 1.2.3.4\n\nAllow ::1",
                "line 3: an entry begins with `Allow`; it must be `allow` or `deny`",
            ),
            (
                "deny 1.2.3.0/33",
                "line 1: the length of the prefix `1.2.3.0/33` is `33`; it must be from 0 to 32",
            ),
            (
                "deny ::/129",
                "line 1: the length of the prefix `::/129` is `129`; it must be from 0 to 128",
            ),
            (
                "deny ::/+1",
                "line 1: the length of the prefix `::/+1` is `+1`; it must be from 0 to 128",
            ),
            (
                "deny 10.0.0.1/8",
                "line 1: the address `10.0.0.1` has bits after the first 8; the prefix must be `10.0.0.0/8`",
            ),
            (
                "deny 2001:db8::1/32",
                "line 1: the address `2001:db8::1` has bits after the first 32; the prefix must be `2001:db8::/32`",
            ),
            ("deny subject", "line 1: the subject has 0 bytes; it must have 1 to 1048576"),
        ] {
            assert_eq!(text.parse::<Lists>().unwrap_err().to_string(), message);
        }
        for text in
            ["deny", "deny alice", "deny 1.2.3.256", "deny 1.2.3.4 5", "allow 1.2.3/24", "deny /8"]
        {
            let error = text.parse::<Lists>().unwrap_err();
            assert_eq!(error.line(), Some(1));
            assert!(error.to_string().contains("is not an address and not a prefix"), "{error}");
        }
    }

    #[test]
    fn a_mapped_prefix_is_an_ipv4_prefix_and_a_shorter_one_contains_no_ipv4_address() {
        let lists: Lists = "deny ::ffff:10.0.0.0/104\nallow ::/0".parse().unwrap();
        assert_eq!(lists.find(b"10.1.2.3"), Some(ListAction::Deny));
        assert_eq!(lists.find(b"::ffff:10.1.2.3"), Some(ListAction::Deny));
        assert_eq!(lists.find(b"11.1.2.3"), None);
        assert_eq!(lists.find(b"::1"), Some(ListAction::Allow));
        let all: Lists = "deny 0.0.0.0/0".parse().unwrap();
        assert_eq!(all.find(b"::ffff:11.1.2.3"), Some(ListAction::Deny));
        assert_eq!(all.find(b"::1"), None);
    }

    #[test]
    fn deny_wins_over_allow_for_the_same_subject_in_any_order() {
        for text in ["deny ::1\nallow ::1/128", "allow ::1\ndeny ::1"] {
            assert_eq!(text.parse::<Lists>().unwrap().find(b"::1"), Some(ListAction::Deny));
        }
        let lists = "deny 1.2.3.4\nallow subject 1.2.3.4".parse::<Lists>().unwrap();
        assert_eq!(lists.find(b"1.2.3.4"), Some(ListAction::Allow));
    }

    #[test]
    fn no_text_panics() {
        for text in [
            "\u{85}#",
            "deny \u{3000}é/é",
            "# \u{2028}",
            "deny é#é #é",
            "\0",
            "deny 1.2.3.4/999999",
        ] {
            let _ = text.parse::<Lists>();
        }
    }
}
