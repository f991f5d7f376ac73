//! Events: the requests and calls that protocols report to the page.

use std::sync::Arc;

use tidegate_core::{Policy, Verdict};

pub(crate) use super::counts::Kind;
pub(crate) use super::shown::Subject;
use super::shown::shown;
pub(crate) use super::slow::SlowCall;
use crate::limits::StatKey;

/// A request or a call that was answered.
pub(crate) struct Event<L> {
    /// The outcome of the whole request.
    pub(crate) kind: Kind,
    /// The kind of the error if there is no decision, or if the decision was made without the
    /// store.
    pub(crate) error: Option<&'static str>,
    /// The decision of each limit of the request, as [`LimitEvent`]s.
    pub(crate) limits: L,
}

/// The decision of one limit.
pub(crate) struct LimitEvent<'a> {
    pub(crate) kind: Kind,
    pub(crate) limit: LimitRef<'a>,
    pub(crate) subject: Subject<'a>,
    /// The verdict, if the kind is `Refused`.
    pub(crate) verdict: Option<&'a Verdict>,
    /// The usage after the decision, if it is known.
    pub(crate) usage: Option<Usage>,
}

/// The used amount of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

/// The percentage of a limit from which a subject is near the limit.
pub(super) const NEAR_PERCENT: u64 = 80;

impl Usage {
    /// Returns the usage after a decision with this verdict. It is not known if the subject is
    /// blocked.
    pub(crate) fn new(verdict: &Verdict) -> Option<Self> {
        let limit = verdict.limit();
        let used = limit.saturating_sub(verdict.remaining());
        verdict.blocked_for().is_zero().then_some(Self { used, limit })
    }

    /// Returns `true` if the subject has used [`NEAR_PERCENT`] of the limit or more.
    pub(super) fn is_near(self) -> bool {
        // Each decision calls this function, so it does not divide.
        u128::from(self.used) * 100 >= u128::from(self.limit.max(1)) * u128::from(NEAR_PERCENT)
    }

    /// Returns the used percentage, rounded down.
    pub(super) fn percent(self) -> u64 {
        let percent = u128::from(self.used) * 100 / u128::from(self.limit.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LimitRef<'a> {
    Key(&'a Arc<StatKey>),
    Policy(&'a Policy),
}

impl LimitRef<'_> {
    pub(crate) fn to_name(self) -> LimitName {
        match self {
            Self::Key(key) => LimitName::Key(Arc::clone(key)),
            Self::Policy(policy) => LimitName::Policy(policy.clone()),
        }
    }
}

/// The key of a limit in the files, or the policy of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LimitName {
    Key(Arc<StatKey>),
    Policy(Policy),
}

impl LimitName {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Key(key) => shown(key.name().as_bytes()),
            Self::Policy(policy) => shown(policy.to_string().as_bytes()),
        }
    }
}
