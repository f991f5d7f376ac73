use std::fmt::{self, Write as _};
use std::ops::Range;

use crate::error::{Error, ErrorKind};

/// The reason why a policy could not be built, or could not be read from text. The message names
/// the wrong value and its bound.
///
/// If the policy was read from text, the error also has the position of the wrong word. `{}` prints
/// the message in one line. `{:#}` adds a line with the text, and a line with carets (`^`) under
/// the wrong word. Both forms are safe to print on a terminal, regardless of the text. Invisible
/// characters are escaped, and long words are cut.
///
/// ```
/// use tidegate_core::Policy;
///
/// let error = "slidinglog 100/1m".parse::<Policy>().unwrap_err();
/// assert_eq!(error.span(), Some(0..10));
/// assert_eq!(
///     format!("{error:#}"),
///     "`slidinglog` is not an algorithm; did you mean `sliding-log`? There are fixed-window, \
///      sliding-log, sliding-counter, token-bucket, gcra, concurrent, quota, credits and fair-pool\n\
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
    marked: Option<(String, Range<usize>)>,
}

/// The part of a policy to which an error belongs. The parser uses the part to find the wrong word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The error belongs to several parts together, or to no single part.
    Whole,
    Name,
    /// The rate, such as `100/1m`: the limit and the window, or the refill and the period.
    Rate,
    Burst,
    Grain,
    Block,
    BlockFactor,
    BlockMax,
    BlockForget,
    Shards,
    MaxHold,
    Warn,
    MaxOpenHolds,
    Slots,
    Lease,
    Zone,
    Anchor,
    Rollover,
    Since,
    Weight,
}

impl PolicyError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Inner { message: message.into(), part: Part::Whole, marked: None }))
    }

    pub(super) fn about(mut self, part: Part) -> Self {
        self.0.part = part;
        self
    }

    pub(super) fn part(&self) -> Part {
        self.0.part
    }

    /// Stores `span` as the position of the wrong word in `text`. If the error already has a
    /// position, keeps that position.
    pub(super) fn at(mut self, text: &str, span: Range<usize>) -> Self {
        self.0.marked.get_or_insert_with(|| (text.to_owned(), span));
        self
    }

    /// Returns the message and the text of the policy in one line.
    pub(super) fn in_one_line(&self) -> String {
        match &self.0.marked {
            None => self.0.message.clone(),
            Some((text, span)) => {
                let (before, rest) = text.split_at_checked(span.start).unwrap_or(("", text));
                let (word, after) = rest.split_at_checked(span.len()).unwrap_or((rest, ""));
                let (before, word, after) = (shown(before), shown(word), shown(after));
                format!("{}, at the marked place of: {before}>{word}<{after}", self.0.message)
            }
        }
    }

    /// Returns the position of the wrong word in the text, in bytes. Returns `None` if the policy
    /// was not read from text.
    #[must_use]
    pub fn span(&self) -> Option<Range<usize>> {
        self.0.marked.as_ref().map(|(_, span)| span.clone())
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let (Some((text, span)), true) = (&self.0.marked, f.alternate()) {
            mark(text, span, f)?;
        }
        Ok(())
    }
}

const WORD_SHOWN: usize = 64;

/// An error prints at most `BEFORE_MARK` characters of the policy's text before the wrong word, and
/// at most `FROM_MARK` characters from the start of the wrong word.
const BEFORE_MARK: usize = 60;
const FROM_MARK: usize = 100;

/// Returns a word for a message. A long word is cut. Invisible characters, and characters that
/// change the direction of writing, are escaped.
pub(crate) fn shown(word: &str) -> String {
    let mut text = String::new();
    for (index, c) in word.chars().enumerate() {
        if index == WORD_SHOWN {
            text.push('…');
            break;
        }
        if is_plain(c) {
            text.push(c);
        } else {
            text.extend(c.escape_debug());
        }
    }
    text
}

/// Returns `true` if a message can contain the character unchanged. This includes quotes and
/// backslashes, although `escape_debug` would escape them.
fn is_plain(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1
}

/// Writes the part of the text around the span, and a line with carets (`^`) under the span.
fn mark(text: &str, span: &Range<usize>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (before, rest) = text.split_at_checked(span.start).unwrap_or((text, ""));
    let skipped = before.chars().count().saturating_sub(BEFORE_MARK);
    // Each character is written as one visible column, so that the carets are exactly under the
    // wrong word.
    let column = |c: char| if is_plain(c) { c } else { '\u{fffd}' };
    f.write_str("\n| ")?;
    if skipped > 0 {
        f.write_char('…')?;
    }
    let mut indent = usize::from(skipped > 0);
    for c in before.chars().skip(skipped) {
        f.write_char(column(c))?;
        indent += 1;
    }
    let mut shown = rest.chars();
    for c in shown.by_ref().take(FROM_MARK) {
        f.write_char(column(c))?;
    }
    if shown.next().is_some() {
        f.write_char('…')?;
    }
    let marked = text.get(span.clone()).map_or(1, |word| word.chars().count());
    write!(f, "\n| {:indent$}{}", "", "^".repeat(marked.clamp(1, FROM_MARK)))
}

impl std::error::Error for PolicyError {}

/// Converts the error into an error of kind [`InvalidConfig`](ErrorKind::InvalidConfig), so that
/// `?` works in a function that returns the error of a store or a limiter.
///
/// ```
/// use tidegate_core::{Error, ErrorKind, Policy};
///
/// fn policies() -> Result<[Policy; 1], Error> {
///     Ok(["api: fixed-window 100/0s".parse()?])
/// }
/// let error = policies().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidConfig);
/// assert!(error.to_string().ends_with("at the marked place of: api: fixed-window 100/>0s<"), "{error}");
/// ```
impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Self {
        Self::new(ErrorKind::InvalidConfig, error.in_one_line())
    }
}
