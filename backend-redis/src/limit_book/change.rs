//! An entry of the history of a limit set.

use std::fmt;

use tidegate_core::{LimitSet, Timestamp};

use super::{LimitBookError, corrupt};

/// A change of a limit set, which has created a version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitChange {
    /// The number of the version.
    pub version: u64,
    /// The time of the server when the change was made.
    pub time: Timestamp,
    /// The author of the change.
    pub author: String,
    /// The reason for the change.
    pub reason: String,
    /// The line of each changed limit before and after the change. A line is `None` if the set had
    /// no such limit.
    pub lines: Vec<(Option<String>, Option<String>)>,
}

/// Prints the change as the history contains it: the version, the time in microseconds since 1970,
/// the author, the reason, and the lines before (`-`) and after (`+`) the change.
impl fmt::Display for LimitChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, time, author, reason, lines } = self;
        write!(f, "version {version}\ntime {}\n", time.as_micros())?;
        write!(f, "author {author}\nreason {reason}\n")?;
        for (before, after) in lines {
            for (sign, line) in [('-', before), ('+', after)] {
                if let Some(line) = line {
                    writeln!(f, "{sign} {line}")?;
                }
            }
        }
        Ok(())
    }
}

impl LimitChange {
    pub(super) fn parse(text: &str) -> Result<Self, LimitBookError> {
        let read = || {
            let mut rest = text.lines();
            let mut field = |name: &str| rest.next()?.strip_prefix(name)?.strip_prefix(' ');
            let (version, time) = (field("version")?.parse().ok()?, field("time")?.parse().ok()?);
            let (author, reason) = (field("author")?.to_owned(), field("reason")?.to_owned());
            let mut lines: Vec<(Option<String>, Option<String>)> = vec![];
            for line in rest {
                match (line.split_at_checked(2)?, lines.last_mut()) {
                    (("- ", line), _) => lines.push((Some(line.to_owned()), None)),
                    (("+ ", line), Some((Some(before), after @ None))) if is_same(before, line) => {
                        *after = Some(line.to_owned());
                    }
                    (("+ ", line), _) => lines.push((None, Some(line.to_owned()))),
                    _ => return None,
                }
            }
            let time = Timestamp::from_micros(time);
            Some(Self { version, time, author, reason, lines })
        };
        read().ok_or_else(|| {
            let text = text.escape_debug().take(100).collect::<String>();
            LimitBookError::Corrupt(format!("an entry of the history is not valid: `{text}`"))
        })
    }

    /// Makes the change.
    pub(super) fn apply(&self, set: &mut LimitSet) -> Result<(), LimitBookError> {
        for (before, after) in &self.lines {
            match (before, after) {
                (_, Some(line)) => {
                    set.set_line(line).map_err(|error| corrupt(line, &error))?;
                }
                (Some(line), None) => {
                    set.remove_line(line).map_err(|error| corrupt(line, &error))?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }
}

/// Returns `true` if both lines are limits for the same subjects.
fn is_same(one: &str, other: &str) -> bool {
    LimitSet::key_of(one).is_ok_and(|one| LimitSet::key_of(other).is_ok_and(|other| one == other))
}
