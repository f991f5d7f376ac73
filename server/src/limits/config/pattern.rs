use memchr::memmem;

/// A text in which each `*` matches any number of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Box<str>,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.into() }
    }

    /// Returns the text of the pattern.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns `true` if `value` matches. The time is at most proportional to the length of `value`
    /// times the number of `*`.
    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        let Some((head, rest)) = self.text.split_once('*') else {
            return self.text.as_bytes() == value;
        };
        let Some(value) = value.strip_prefix(head.as_bytes()) else { return false };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut value) = value.strip_suffix(tail.as_bytes()) else { return false };
        for part in middle.split('*') {
            match memmem::find(value, part.as_bytes()) {
                Some(at) => value = &value[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_star_stands_for_any_characters() {
        for (pattern, fits, others) in [
            ("foo*", &["foo", "foo1", "foo*"][..], &["bar", "fo", "xfoo"][..]),
            ("bar*b", &["barab", "bar123b", "barb"], &["bara", "xbarb", "bar"]),
            (
                "foo*bar*baz",
                &["foo123bar456baz", "foobarbaz", "foobarbarbaz"],
                &["foo123baz", "bar456baz", "foobaz", "foobabaz"],
            ),
            ("*", &["", "a"], &[]),
            ("**", &["", "a"], &[]),
            ("ab*ba", &["abba", "abxba"], &["aba"]),
            ("*ü*", &["ü", "aüb"], &["u"]),
            ("plain", &["plain"], &["plain1", ""]),
        ] {
            let pattern = Pattern::new(pattern);
            let matches = |value: &&&str| pattern.matches(value.as_bytes());
            assert_eq!(fits.iter().find(|value| !matches(value)), None, "{pattern:?}");
            assert_eq!(others.iter().find(matches), None, "{pattern:?}");
        }
    }

    #[test]
    fn b95_a_star_matches_bytes_that_are_not_utf8() {
        for (pattern, fits, others) in [
            ("dave*", &[&b"dave\xff"[..], b"dave\xc3"][..], &[&b"dav\xff"[..], b"\xffdave"][..]),
            ("a*b*c", &[b"a\xffbc", b"ab\xff\xffc"], &[b"a\xffc", b"abc\xff"]),
        ] {
            let pattern = Pattern::new(pattern);
            assert!(fits.iter().all(|value| pattern.matches(value)), "{pattern:?}");
            assert!(!others.iter().any(|value| pattern.matches(value)), "{pattern:?}");
        }
    }
}
