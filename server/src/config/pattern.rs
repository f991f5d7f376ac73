/// A text in which each `*` stands for any number of characters, none included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: Box<str>,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.into() }
    }

    /// The pattern as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `value` fits. The work is linear in `value` for each part between two `*`.
    pub(crate) fn matches(&self, value: &str) -> bool {
        let Some((head, rest)) = self.text.split_once('*') else { return *self.text == *value };
        let Some(value) = value.strip_prefix(head) else { return false };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut value) = value.strip_suffix(tail) else { return false };
        for part in middle.split('*') {
            match value.find(part) {
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
            fits.iter().for_each(|value| assert!(pattern.matches(value), "{pattern:?} {value}"));
            others.iter().for_each(|value| assert!(!pattern.matches(value), "{pattern:?} {value}"));
        }
    }
}
