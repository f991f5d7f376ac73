//! Escapes untrusted text in HTML.
//!
//! This program does not use a template engine, because a page consists mostly of SVG with computed
//! numbers. Each writer writes text from a trace as a [`Html`], and a test with hostile subjects
//! checks each writer.

use std::fmt;

use crate::report::escape::visible;

/// A text for an element or a quoted attribute. `Display` makes invisible characters visible and
/// escapes the text.
#[derive(Debug)]
pub(super) struct Html<T>(pub(super) T);

impl<T: AsRef<str>> fmt::Display for Html<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = visible(self.0.as_ref());
        f.write_str(&html_escape::encode_quoted_attribute(&text))
    }
}

/// A length in tenths of a percent, for CSS.
#[derive(Debug)]
pub(super) struct Percent(pub(super) u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}%", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_html_would_read_is_escaped() {
        let hostile = "<script>alert('1')</script>&\"\u{202e}\0";
        assert_eq!(
            Html(hostile).to_string(),
            "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&amp;&quot;\\u{202e}\\u{0}"
        );
    }

    #[test]
    fn a_percent_has_one_decimal() {
        assert_eq!(Percent(5).to_string(), "0.5%");
        assert_eq!(Percent(1000).to_string(), "100.0%");
    }
}
