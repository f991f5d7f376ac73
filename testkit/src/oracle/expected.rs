//! An answer, ready to be compared.

use std::time::Duration;

use tidegate_core::{Decision, Error, ErrorKind, Outcome, Verdict};

/// What a store answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// One of these errors.
    Error(Vec<ErrorKind>),
    /// A decision.
    Decision {
        /// Whether the request may pass.
        allowed: bool,
        /// How far in the future the place is that was booked.
        wait: Duration,
        /// What each policy says.
        verdicts: Vec<ExpectedVerdict>,
    },
}

/// What one policy says. See [`Verdict`] for the fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in Verdict")]
pub struct ExpectedVerdict {
    pub outcome: Outcome,
    pub shadow: bool,
    pub limit: u64,
    pub remaining: u64,
    pub retry_after: Option<Duration>,
    pub reset_after: Duration,
    pub blocked_for: Duration,
}

impl Expected {
    /// The answer that a store gave.
    #[must_use]
    pub fn from_answer(answer: &Result<Decision, Error>) -> Self {
        match answer {
            Err(error) => Self::Error(vec![error.kind()]),
            Ok(decision) => Self::Decision {
                allowed: decision.is_allowed(),
                wait: decision.wait(),
                verdicts: decision.verdicts().iter().map(Into::into).collect(),
            },
        }
    }

    /// Whether an answer that came is the one expected, or one of those.
    #[must_use]
    pub fn is_one_of(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Error(came), Self::Error(expected)) => {
                came.iter().all(|kind| expected.contains(kind))
            }
            _ => self == expected,
        }
    }
}

impl From<&Verdict> for ExpectedVerdict {
    fn from(verdict: &Verdict) -> Self {
        Self {
            outcome: verdict.outcome(),
            shadow: verdict.is_shadow(),
            limit: verdict.limit(),
            remaining: verdict.remaining(),
            retry_after: verdict.retry_after(),
            reset_after: verdict.reset_after(),
            blocked_for: verdict.blocked_for(),
        }
    }
}
