//! The forms in which servers announce their limits, and which limits they announce.

/// The fields that a response announces limits with.
///
/// The drafts of the HTTPAPI working group have changed their syntax twice, and none is a standard yet. The
/// variants say which draft's *syntax* is written; that is no claim to comply with a draft.
///
/// | variant | fields | several policies |
/// |---|---|---|
/// | [`Ietf11`](Self::Ietf11) | `RateLimit: "burst";r=50;t=30` and `RateLimit-Policy: "burst";q=100;w=60` | all |
/// | [`Ietf07`](Self::Ietf07) | `RateLimit: limit=100, remaining=50, reset=30` and `RateLimit-Policy: 100;w=60` | the tightest |
/// | [`Ietf06`](Self::Ietf06) | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` and `RateLimit-Policy: 100;w=60` | the tightest |
/// | [`EnvoyDraft03`](Self::EnvoyDraft03) | `X-RateLimit-Limit: 100, 100;w=60;name="burst"`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` in seconds from now | the tightest, and in the first field the policies of all |
/// | [`XRateLimit`](Self::XRateLimit) | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` in seconds from now | the tightest |
/// | [`XRateLimitEpoch`](Self::XRateLimitEpoch) | the same, with the reset in seconds since 1970, as GitHub has it | the tightest |
///
/// The tightest policy of an admission is the one with the least left, and of a refusal the
/// refusing one with the longest wait. A policy with a [unit](super::FieldWriterBuilder::unit)
/// counts as the tightest only if all have one, because the older fields cannot name a unit. "All"
/// are the policies of the [`FieldScope`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FieldFormat {
    /// The syntax of draft 11, which is that of drafts 08 to 11.
    #[default]
    Ietf11,
    /// The syntax of draft 07, which no other draft has.
    Ietf07,
    /// The syntax of drafts 04 to 06.
    Ietf06,
    /// What Envoy writes with `enable_x_ratelimit_headers: DRAFT_VERSION_03`: the syntax of draft-polli-03, for
    /// clients and dashboards that are made for it.
    EnvoyDraft03,
    /// `X-RateLimit-*`, with the reset as a number of seconds from now.
    XRateLimit,
    /// `X-RateLimit-*`, with the reset as seconds since 1970. Correct only for clients with a clock that is.
    XRateLimitEpoch,
}

/// The policies that the fields of a response name.
///
/// A decision on many policies adds many bytes to each response: in the syntax of draft 11, some 40
/// bytes for each policy in `RateLimit-Policy` and some 25 in `RateLimit`. The drafts allow a
/// server to name only the tightest policies, because these tell a client how much it can send
/// next.
///
/// The tightest policy of a [unit](super::FieldWriterBuilder::unit) has the least remaining. In a
/// refusal it is the refusing policy with the longest wait, if a policy of the unit refuses.
/// `Retry-After` always accounts for all policies.
///
/// ```
/// use tidegate_core::{Decision, Outcome, Policy, Verdict};
/// use tidegate_http::fields::{FieldScope, FieldWriter};
///
/// let texts = ["minute: token-bucket 60/1m", "day: fixed-window 900/1d", "tokens: fixed-window 5000/1d"];
/// let policies = texts.map(|text| text.parse::<Policy>().unwrap());
/// let builder = FieldWriter::builder().unit("tokens", "tokens").scope(FieldScope::Tightest);
/// let writer = builder.build(&policies)?;
///
/// let verdict = |limit, remaining| Verdict::new(Outcome::Allowed, limit).with_remaining(remaining);
/// let decision = Decision::new([verdict(60, 59), verdict(900, 3), verdict(5_000, 4_000)]);
/// let mut headers = http::HeaderMap::new();
/// writer.write(decision.verdicts_of(&policies), &decision, &mut headers);
/// assert_eq!(headers["ratelimit"], r#""day";r=3;t=0, "tokens";r=4000;t=0"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FieldScope {
    /// All policies of a decision on up to four; the tightest of each unit of a decision on more.
    /// Shadow policies do not count.
    #[default]
    Auto,
    /// All policies.
    All,
    /// The tightest policy of each unit.
    Tightest,
}

impl FieldScope {
    /// The largest number of policies that [`Auto`](Self::Auto) names all of.
    const MAX_ALL: usize = 4;

    /// Returns `true` if the fields name only some of this many policies.
    pub(super) fn is_narrower_than(self, policies: usize) -> bool {
        match self {
            Self::Auto => policies > Self::MAX_ALL,
            Self::All => false,
            Self::Tightest => policies > 1,
        }
    }
}
