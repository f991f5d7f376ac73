//! The formats of the fields in which a response announces limits, and the choice of the policies
//! that these fields name.

/// The format of the fields in which a response announces limits.
///
/// The drafts of the HTTPAPI working group have changed their syntax twice, and no draft is a
/// standard yet. Each variant is named after the draft whose *syntax* it uses. The variant does not
/// claim to comply with the other rules of the draft.
///
/// | variant | fields | several policies |
/// |---|---|---|
/// | [`Ietf11`](Self::Ietf11) | `RateLimit: "burst";r=50;t=30` and `RateLimit-Policy: "burst";q=100;w=60` | all |
/// | [`Ietf07`](Self::Ietf07) | `RateLimit: limit=100, remaining=50, reset=30` and `RateLimit-Policy: 100;w=60` | the tightest |
/// | [`Ietf06`](Self::Ietf06) | `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` and `RateLimit-Policy: 100;w=60` | the tightest |
/// | [`EnvoyDraft03`](Self::EnvoyDraft03) | `X-RateLimit-Limit: 100, 100;w=60;name="burst"`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` in seconds from now | the tightest, and in the first field the policies of all |
/// | [`XRateLimit`](Self::XRateLimit) | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` in seconds from now | the tightest |
/// | [`XRateLimitEpoch`](Self::XRateLimitEpoch) | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` in seconds since 1970, like GitHub | the tightest |
///
/// In an admission, the tightest policy is the policy with the smallest remaining amount. In a
/// refusal, it is the refusing policy with the longest wait. Only [`Ietf11`](Self::Ietf11) can name
/// a unit. In the other formats, a policy with a [unit](super::FieldWriterBuilder::unit) can be the
/// tightest only if all policies have a unit. In the table, "all" means all policies that the
/// [`FieldScope`] selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FieldFormat {
    /// The syntax of drafts 08 to 11.
    #[default]
    Ietf11,
    /// The syntax of draft 07, which differs from all other drafts.
    Ietf07,
    /// The syntax of drafts 04 to 06.
    Ietf06,
    /// The syntax of draft-polli-03, as Envoy writes it with `enable_x_ratelimit_headers:
    /// DRAFT_VERSION_03`. Use this format if clients or dashboards expect it.
    EnvoyDraft03,
    /// `X-RateLimit-*`, with the reset in seconds from now.
    XRateLimit,
    /// `X-RateLimit-*`, with the reset in seconds since 1970. The reset is correct only for clients
    /// with a correct clock.
    XRateLimitEpoch,
}

/// The policies that the fields of a response name.
///
/// A decision on many policies adds many bytes to each response. In the syntax of draft 11, each
/// policy takes about 40 bytes in `RateLimit-Policy` and about 25 bytes in `RateLimit`. The drafts
/// allow a server to name only the tightest policies, because these policies tell a client how much
/// it can send next.
///
/// Among the policies of one [unit](super::FieldWriterBuilder::unit), the tightest policy has the
/// smallest remaining amount. If a policy of the unit refuses, the tightest policy is the refusing
/// policy with the longest wait. The field `Retry-After` always takes all policies into account.
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
    /// All policies if a decision is on at most four policies, and otherwise the tightest policy of
    /// each unit. Shadow policies do not count.
    #[default]
    Auto,
    /// All policies.
    All,
    /// One policy for each unit in which policies count, such as requests or tokens. If policies of
    /// the unit refuse, it is the refusing policy with the longest wait. Otherwise, it is the
    /// policy with the smallest remaining amount.
    Tightest,
}

impl FieldScope {
    /// The maximum number of policies for which [`Auto`](Self::Auto) names all policies.
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
