//! An answer, ready to be compared.

use std::fmt;
use std::time::Duration;

use tidegate_core::{Decision, Error, ErrorKind, Outcome, Verdict};

use crate::show;

/// What a store answers, or what the oracle expects it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// One of these errors.
    Error(Vec<ErrorKind>),
    /// A decision.
    Decision {
        /// Whether the request may pass.
        allowed: bool,
        /// How far in the future the place is that was booked.
        wait: Duration,
        /// What each policy says.
        verdicts: Vec<ReplyVerdict>,
        /// How much of each charge was given back, recorded or taken.
        amounts: Vec<u64>,
        /// Which of these a settlement has charged.
        charged: Vec<usize>,
        /// How much of each charge is held and not spent.
        unspent: Vec<Option<u64>>,
    },
}

/// What one policy says. See [`Verdict`] for the fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as in Verdict")]
pub struct ReplyVerdict {
    pub outcome: Outcome,
    pub shadow: bool,
    pub limit: u64,
    pub remaining: u64,
    pub retry_after: Option<Duration>,
    pub reset_after: Duration,
    pub blocked_for: Duration,
}

impl Reply {
    /// The answer that a store gave.
    #[must_use]
    pub fn from_answer(answer: &Result<Decision, Error>) -> Self {
        match answer {
            Err(error) => Self::Error(vec![error.kind()]),
            Ok(decision) => Self::Decision {
                allowed: decision.is_allowed(),
                wait: decision.wait(),
                verdicts: decision.verdicts().iter().map(Into::into).collect(),
                amounts: decision.amounts().to_vec(),
                charged: (0..decision.amounts().len())
                    .filter(|&it| decision.is_charged(it))
                    .collect(),
                unspent: decision.unspent().to_vec(),
            },
        }
    }

    pub(super) fn with_amounts(mut self, new: Vec<u64>) -> Self {
        if let Self::Decision { amounts, .. } = &mut self {
            *amounts = new;
        }
        self
    }

    pub(super) fn with_charged(mut self, new: Vec<usize>) -> Self {
        if let Self::Decision { charged, .. } = &mut self {
            *charged = new;
        }
        self
    }

    pub(super) fn with_unspent(mut self, new: Vec<Option<u64>>) -> Self {
        if let Self::Decision { unspent, .. } = &mut self {
            *unspent = new;
        }
        self
    }

    /// The same without the times that verdicts name.
    pub(super) fn without_times(mut self) -> Self {
        if let Self::Decision { verdicts, .. } = &mut self {
            for verdict in verdicts {
                (verdict.retry_after, verdict.reset_after) = (None, Duration::ZERO);
            }
        }
        self
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

impl Reply {
    /// The fields in which this actual answer differs from an expected one, one per line.
    pub(super) fn differences(&self, expected: &Self) -> String {
        let (
            Self::Decision { allowed, wait, verdicts, amounts, charged, unspent },
            Self::Decision {
                allowed: expect_allowed,
                wait: expect_wait,
                verdicts: expect_verdicts,
                amounts: expect_amounts,
                charged: expect_charged,
                unspent: expect_unspent,
            },
        ) = (self, expected)
        else {
            return String::new();
        };
        let mut text = String::new();
        let mut differ = |what: String, actual: String, expected: String| {
            if actual != expected {
                text += &format!("\n    {what}: expected {expected}, actual {actual}");
            }
        };
        differ("allowed".to_owned(), allowed.to_string(), expect_allowed.to_string());
        differ("wait".to_owned(), format!("{wait:?}"), format!("{expect_wait:?}"));
        differ("amounts".to_owned(), format!("{amounts:?}"), format!("{expect_amounts:?}"));
        differ("charged".to_owned(), format!("{charged:?}"), format!("{expect_charged:?}"));
        differ("unspent".to_owned(), format!("{unspent:?}"), format!("{expect_unspent:?}"));
        for (place, (actual, expected)) in verdicts.iter().zip(expect_verdicts).enumerate() {
            for ((name, actual), (_, expected)) in
                actual.fields().into_iter().zip(expected.fields())
            {
                differ(format!("{name} of charge {place}"), actual, expected);
            }
        }
        show::cut(&text, 9, 1_000)
    }
}

impl ReplyVerdict {
    /// The fields as text, by name.
    fn fields(&self) -> [(&'static str, String); 7] {
        let retry_after = match self.retry_after {
            Some(wait) => format!("{wait:?}"),
            None => "never".to_owned(),
        };
        [
            ("outcome", format!("{:?}", self.outcome)),
            ("limit", self.limit.to_string()),
            ("remaining", self.remaining.to_string()),
            ("retry_after", retry_after),
            ("reset_after", format!("{:?}", self.reset_after)),
            ("blocked_for", format!("{:?}", self.blocked_for)),
            ("shadow", self.shadow.to_string()),
        ]
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(kinds) => write!(f, "error of one of the kinds {kinds:?}"),
            Self::Decision { allowed, wait, verdicts, amounts, charged, unspent } => {
                write!(f, "{} in {wait:?}", if *allowed { "allowed" } else { "refused" })?;
                for verdict in verdicts.iter().take(4) {
                    let fields = verdict.fields().map(|(name, value)| format!("{name} {value}"));
                    write!(f, " ({})", fields.join(", "))?;
                }
                f.write_str(if verdicts.len() > 4 { " …" } else { "" })?;
                if !amounts.is_empty() {
                    write!(f, " amounts {amounts:?}, charged {charged:?}")?;
                }
                if unspent.is_empty() { Ok(()) } else { write!(f, " unspent {unspent:?}") }
            }
        }
    }
}

impl From<&Verdict> for ReplyVerdict {
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
