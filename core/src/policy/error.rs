use std::fmt;
use std::ops::Range;

/// Why a policy could not be built or read: the message names the value and the bound it broke.
///
/// From text, the error also points at the word that is wrong. `{}` prints one line, `{:#}` adds the
/// text with a mark under that word.
///
/// ```
/// use tidegate_core::Policy;
///
/// let error = "slidinglog 100/1m".parse::<Policy>().unwrap_err();
/// assert_eq!(error.span(), Some(0..10));
/// assert_eq!(
///     format!("{error:#}"),
///     "`slidinglog` is no algorithm; did you mean `sliding-log`? There are fixed-window, \
///      sliding-log, sliding-counter, token-bucket and gcra\n\
///      | slidinglog 100/1m\n\
///      | ^^^^^^^^^^",
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    message: String,
    part: Part,
    place: Option<(String, Range<usize>)>,
}

/// Which part of a policy an error is about, so that the parser can point at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Several together, or none in particular.
    Whole,
    Name,
    /// The limit and the window, or the refill and the period.
    Rate,
    Burst,
    Grain,
    Shards,
}

impl PolicyError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Inner { message: message.into(), part: Part::Whole, place: None }))
    }

    /// The same error, which is about this part.
    pub(super) fn about(mut self, part: Part) -> Self {
        self.0.part = part;
        self
    }

    pub(super) fn part(&self) -> Part {
        self.0.part
    }

    /// The same error, pointing at a word of `text`.
    pub(super) fn at(mut self, text: &str, span: Range<usize>) -> Self {
        self.0.place.get_or_insert_with(|| (text.to_owned(), span));
        self
    }

    /// Where in the text the word is that is wrong, in bytes; `None` if the policy was not read
    /// from text.
    #[must_use]
    pub fn span(&self) -> Option<Range<usize>> {
        self.0.place.as_ref().map(|(_, span)| span.clone())
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let (Some((text, span)), true) = (&self.0.place, f.alternate()) {
            // Every character takes one column here, so that the mark stands where it belongs.
            let shown: String =
                text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            let width = |range: Range<usize>| text.get(range).map_or(1, |s| s.chars().count());
            let (indent, marks) = (width(0..span.start), width(span.clone()).max(1));
            write!(f, "\n| {shown}\n| {:indent$}{}", "", "^".repeat(marks))?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyError {}
