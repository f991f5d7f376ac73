//! The forms in which servers announce their limits.

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
/// The tightest policy of an admission is the one with the least left, and of a refusal the refusing one with
/// the longest wait. A policy with a [unit](super::FieldWriterBuilder::unit) counts as the tightest only if
/// all have one, because the older fields cannot name a unit.
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
