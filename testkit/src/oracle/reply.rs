//! A reply: an answer in a form that can be compared with an expected answer.

use std::fmt;
use std::time::Duration;

use tidegate_core::{Decision, EarliestLapse, Error, ErrorKind, Outcome, Place, Verdict};

use crate::show;

/// An answer of a store, or an answer that the oracle expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// The kinds of an error. The answer of a store has exactly one kind. If the oracle expects an
    /// error, the store may return any of these kinds.
    Error(Vec<ErrorKind>),
    Decision {
        allowed: bool,
        wait: Duration,
        verdicts: Vec<ReplyVerdict>,
        /// The amount of each charge that was refunded, recorded or acquired.
        amounts: Vec<u64>,
        /// The indices of the amounts that a settlement has charged. All other amounts were
        /// refunded.
        charged: Vec<usize>,
        /// The unspent part of the holds on the state of each charge of a peek.
        unspent: Vec<Option<u64>>,
        /// The fence of each charge of a hold with slots.
        fences: Vec<Option<u64>>,
        /// The place of a call that waits for slots.
        place: Option<Place>,
    },
}

/// A verdict in a form that can be compared. [`Verdict`] describes the fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReplyVerdict {
    pub(super) outcome: Outcome,
    pub(super) shadow: bool,
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) retry_after: Option<Duration>,
    pub(super) earliest_lapse: Option<Duration>,
    pub(super) reset_after: Duration,
    pub(super) blocked_for: Duration,
    pub(super) block_level: u32,
    pub(super) warns: bool,
}

impl Reply {
    pub(super) fn from_answer(answer: &Result<Decision, Error>) -> Self {
        match answer {
            Err(error) => Self::Error(vec![error.kind()]),
            Ok(decision) => Self::Decision {
                allowed: decision.is_allowed(),
                wait: decision.wait(),
                verdicts: decision.verdicts().iter().map(Into::into).collect(),
                amounts: decision.amounts().to_vec(),
                charged: (0..decision.amounts().len())
                    .filter(|&place| decision.is_charged(place))
                    .collect(),
                unspent: decision.unspent().to_vec(),
                fences: decision.fences().to_vec(),
                place: decision.place(),
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

    pub(super) fn with_fences(mut self, new: Vec<Option<u64>>) -> Self {
        if let Self::Decision { fences, .. } = &mut self {
            *fences = new;
        }
        self
    }

    pub(super) fn with_place(mut self, new: Option<Place>) -> Self {
        if let Self::Decision { place, .. } = &mut self {
            *place = new;
        }
        self
    }

    pub(super) fn without_times(mut self) -> Self {
        if let Self::Decision { verdicts, .. } = &mut self {
            for verdict in verdicts {
                (verdict.retry_after, verdict.reset_after) = (None, Duration::ZERO);
            }
        }
        self
    }

    /// Returns `true` if this answer equals the expected answer, or is an error of one of the
    /// expected kinds.
    pub(super) fn is_one_of(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Error(actual), Self::Error(expected)) => {
                actual.iter().all(|kind| expected.contains(kind))
            }
            _ => self == expected,
        }
    }
}

impl Reply {
    /// Returns one line for each field in which this answer differs from the expected answer.
    pub(super) fn differences(&self, expected: &Self) -> String {
        let (
            Self::Decision { allowed, wait, verdicts, amounts, charged, unspent, fences, place },
            Self::Decision {
                allowed: expect_allowed,
                wait: expect_wait,
                verdicts: expect_verdicts,
                amounts: expect_amounts,
                charged: expect_charged,
                unspent: expect_unspent,
                fences: expect_fences,
                place: expect_place,
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
        differ("fences".to_owned(), format!("{fences:?}"), format!("{expect_fences:?}"));
        differ("place".to_owned(), format!("{place:?}"), format!("{expect_place:?}"));
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
    fn fields(&self) -> [(&'static str, String); 10] {
        let retry_after = match self.retry_after {
            Some(wait) => format!("{wait:?}"),
            None => "never".to_owned(),
        };
        [
            ("outcome", format!("{:?}", self.outcome)),
            ("limit", self.limit.to_string()),
            ("remaining", self.remaining.to_string()),
            ("retry_after", retry_after),
            ("earliest_lapse", format!("{:?}", self.earliest_lapse)),
            ("reset_after", format!("{:?}", self.reset_after)),
            ("blocked_for", format!("{:?}", self.blocked_for)),
            ("block_level", self.block_level.to_string()),
            ("shadow", self.shadow.to_string()),
            ("warns", self.warns.to_string()),
        ]
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(kinds) => write!(f, "an error of one of the kinds {kinds:?}"),
            Self::Decision {
                allowed,
                wait,
                verdicts,
                amounts,
                charged,
                unspent,
                fences,
                place,
            } => {
                write!(f, "{} with wait {wait:?}", if *allowed { "allowed" } else { "refused" })?;
                for verdict in verdicts.iter().take(4) {
                    let fields = verdict.fields().map(|(name, value)| format!("{name} {value}"));
                    write!(f, " ({})", fields.join(", "))?;
                }
                f.write_str(if verdicts.len() > 4 { " …" } else { "" })?;
                if !amounts.is_empty() {
                    write!(f, " amounts {amounts:?}, charged {charged:?}")?;
                }
                if !fences.is_empty() {
                    write!(f, " fences {fences:?}")?;
                }
                if let Some(place) = place {
                    write!(f, " {place:?}")?;
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
            earliest_lapse: verdict.earliest_lapse().map(EarliestLapse::after),
            reset_after: verdict.reset_after(),
            blocked_for: verdict.blocked_for(),
            block_level: verdict.block_level().into(),
            warns: verdict.warns(),
        }
    }
}
