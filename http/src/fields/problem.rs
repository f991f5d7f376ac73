//! Bodies of refusals, in the format of RFC 9457.

use http::{HeaderValue, StatusCode};
use smallvec::SmallVec;
use tidegate_core::{Decision, DegradedAnswer, PolicyVerdict};

use super::text::{Text, fits};

/// The reason for a refusal, as a problem of RFC 9457. The drafts of the `RateLimit` fields
/// register the types of these problems.
///
/// ```
/// use tidegate_core::{Limiter, ManualClock};
/// use tidegate_http::fields::Problem;
/// use tidegate_memory::MemoryStore;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::builder().clock(ManualClock::default()).build();
/// let limiter = Limiter::new(store, ["daily: fixed-window 5/1d".parse()?])?;
/// let admission = limiter.subject("alice").cost(3).acquire().await?;
/// assert!(Problem::new(limiter.verdicts(&admission), &admission).is_none());
///
/// let refusal = limiter.subject("alice").cost(3).acquire().await?;
/// let problem = Problem::new(limiter.verdicts(&refusal), &refusal).unwrap();
/// assert_eq!(problem.status(), 429);
/// assert_eq!(
///     problem.to_json(),
///     r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#.to_owned()
///         + r#""title":"Request cannot be satisfied as assigned quota has been exceeded","#
///         + r#""status":429,"violated-policies":["daily"]}"#
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem<'a> {
    kind: ProblemKind,
    violated: SmallVec<[&'a str; 4]>,
}

/// A registered type of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A limit is exhausted, or the cost exceeds the limit.
    QuotaExceeded,
    /// The store returned no decision. The request was refused without a decision, or by a fallback
    /// that enforces only a share of the limit. The client did not cause the refusal.
    TemporaryReducedCapacity,
    /// The subject is blocked, for example after a refusal by a policy with
    /// [`block_for`](tidegate_core::Policy::block_for).
    AbnormalUsageDetected,
}

impl ProblemKind {
    /// Returns 503 if the store returned no decision, and otherwise 429.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::QuotaExceeded | Self::AbnormalUsageDetected => StatusCode::TOO_MANY_REQUESTS,
            Self::TemporaryReducedCapacity => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the URI of the type.
    #[must_use]
    pub const fn type_uri(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::TemporaryReducedCapacity => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Self::AbnormalUsageDetected => {
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
            }
        }
    }

    /// Returns the title, in English.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::QuotaExceeded => {
                "Request cannot be satisfied as assigned quota has been exceeded"
            }
            Self::TemporaryReducedCapacity => {
                "Request cannot be satisfied due to temporary server capacity constraints"
            }
            Self::AbnormalUsageDetected => {
                "Request not satisfied due to detection of abnormal request pattern"
            }
        }
    }
}

impl<'a> Problem<'a> {
    /// The media type `application/problem+json`.
    pub const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

    /// Creates the problem of a refusal. Returns `None` for an admission.
    ///
    /// If the store returned no decision, the kind is [`ProblemKind::TemporaryReducedCapacity`]. If
    /// a refusing policy blocks the subject, the kind is [`ProblemKind::AbnormalUsageDetected`]. In
    /// all other cases, the kind is [`ProblemKind::QuotaExceeded`].
    pub fn new(
        verdicts: impl IntoIterator<Item = PolicyVerdict<'a>>,
        decision: &Decision,
    ) -> Option<Self> {
        if decision.is_allowed() {
            return None;
        }
        let mut kind = ProblemKind::QuotaExceeded;
        let mut violated = SmallVec::new();
        for verdict in verdicts.into_iter().filter(PolicyVerdict::refuses) {
            if !verdict.blocked_for().is_zero() {
                kind = ProblemKind::AbnormalUsageDetected;
            }
            if fits(verdict.name()) {
                violated.push(verdict.name());
            }
        }
        match decision.degraded().map(|degraded| degraded.answer) {
            // A failure policy that fails open still refuses a cost above the limit, because no
            // store admits it.
            None | Some(DegradedAnswer::FailedOpen) => {}
            Some(DegradedAnswer::FellBack) => kind = ProblemKind::TemporaryReducedCapacity,
            Some(_) => {
                // No policy decided.
                violated.clear();
                kind = ProblemKind::TemporaryReducedCapacity;
            }
        }
        Some(Self { kind, violated })
    }

    /// Returns the kind of the problem.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// Returns the names of the policies that refuse. The slice is empty if no policy decided.
    #[must_use]
    pub fn violated_policies(&self) -> &[&'a str] {
        &self.violated
    }

    /// Returns the body, which has the media type [`CONTENT_TYPE`](Self::CONTENT_TYPE).
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = Text::default();
        text.push_str(r#"{"type":"#);
        text.push_string(self.kind.type_uri());
        text.push_str(r#","title":"#);
        text.push_string(self.kind.title());
        text.push_str(r#","status":"#);
        text.push_integer(self.status().as_u16().into());
        if !self.violated.is_empty() {
            text.push_str(r#","violated-policies":["#);
            for (place, name) in self.violated.iter().enumerate() {
                text.push_str(if place > 0 { "," } else { "" });
                text.push_string(name);
            }
            text.push_str("]");
        }
        text.push_str("}");
        // The text is ASCII.
        String::from_utf8_lossy(text.as_bytes()).into_owned()
    }
}
