//! Text of others in HTML.

use std::fmt;

use crate::report::escape::visible;

/// Text made visible and escaped, for an element or a quoted attribute.
#[derive(Debug)]
pub(super) struct Html<T>(pub(super) T);

impl<T: AsRef<str>> fmt::Display for Html<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = visible(self.0.as_ref());
        let mut rest = text.as_ref();
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
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
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\\u{202e}\\u{0}"
        );
    }

    #[test]
    fn a_percent_has_one_decimal() {
        assert_eq!(Percent(5).to_string(), "0.5%");
        assert_eq!(Percent(1000).to_string(), "100.0%");
    }
}
