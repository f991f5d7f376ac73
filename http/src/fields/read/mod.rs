//! What a server announces about its limits.

mod dialects;
mod moment;
mod structured;

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{AGE, RETRY_AFTER};

use moment::{ceil_number, moment};

/// The longest field that is read, in bytes: all its lines together. A longer one counts as malformed.
const MAX_FIELD: usize = 64 * 1024;

/// The maximum number of limits in one response. That is what a parser of structured fields has to support.
const MAX_LIMITS: usize = 1024;

/// The limits that a server announced with a response, whatever form it writes them in.
///
/// | read | from |
/// |---|---|
/// | `RateLimit`, `RateLimit-Policy` in the syntax of drafts 08 to 11 | Cloudflare, Atlassian, [`FieldWriter`](super::FieldWriter) |
/// | `RateLimit` in the syntax of draft 07 | |
/// | `RateLimit-Limit`, `-Remaining`, `-Reset` of drafts 00 to 06 | Kong, GitLab (with the reset since 1970), Docker Hub (`100;w=21600`), many gateways |
/// | `X-RateLimit-*`, `X-Rate-Limit-*` | GitHub, Discord (`Reset-After`), Reddit, Atlassian, Envoy (with its policies), older Cloudflare |
/// | `X-RateLimit-Limit-requests` and the like | OpenAI, Kong |
/// | `X-RateLimit-Requests-Limit` and the like | Linear |
/// | `anthropic-ratelimit-requests-limit` and the like | Anthropic |
/// | `X-Shopify-Shop-Api-Call-Limit: 32/40` | Shopify |
/// | `Retry-After` as seconds or as a date | all |
///
/// # How it is read
///
/// * The newest form that tells what remains counts, and older ones beside it are ignored: drafts 08 to 11, then
///   07, then 00 to 06, then all others.
/// * A malformed field is ignored as a whole, and so is one of more than 64 KiB or 1,024 members. A field of
///   several lines is their list, if it is a structured field; else the smallest number or the latest time.
/// * A time to wait or a reset may be a number, an HTTP date, an ISO 8601 time with a zone, or a duration as in
///   Go (`6m0s`). A number below 10⁹ is seconds from now, one below 10¹¹ seconds since 1970, and any other
///   milliseconds since 1970. Fractions of a second are rounded up, and fractions of what remains down.
/// * A time in the past is now. A time more than 71 years ahead
///   ([`MAX_SPAN`](tidegate_core::MAX_SPAN)) is that far ahead.
/// * Of several `Retry-After` the latest counts.
/// * `Beta-` fields, which only tell what would be, are not read.
/// * A response from a cache (`Age` above 0) announces nothing.
///
/// Times since 1970 and dates are compared with this machine's clock, which should be synchronized.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::HeaderMap;
/// use tidegate_http::fields::ServerLimits;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit-policy", r#""burst";q=100;w=60, "daily";q=1000;w=86400"#.parse()?);
/// headers.insert("ratelimit", r#""burst";r=0;t=30, "daily";r=812;t=36000"#.parse()?);
///
/// let now = SystemTime::now();
/// let announced = ServerLimits::read(&headers, now);
/// let burst = &announced.limits()[0];
/// assert_eq!((burst.name(), burst.limit(), burst.remaining()), (Some("burst"), Some(100), Some(0)));
/// assert_eq!(burst.window(), Some(Duration::from_secs(60)));
/// assert_eq!(announced.not_before(), Some(now + Duration::from_secs(30)));
///
/// headers.insert("retry-after", "5".parse()?); // takes precedence
/// let announced = ServerLimits::read(&headers, now);
/// assert_eq!(announced.not_before(), Some(now + Duration::from_secs(5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerLimits {
    limits: Vec<ServerLimit>,
    retry_after: Option<SystemTime>,
}

/// One of the limits that a server announced: as much as it told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerLimit {
    name: Option<Box<str>>,
    partition_key: Option<Box<[u8]>>,
    unit: Option<Box<str>>,
    limit: Option<u64>,
    window: Option<Duration>,
    remaining: Option<u64>,
    resets_at: Option<SystemTime>,
}

impl ServerLimits {
    /// Reads the fields of a response that arrived at `now`.
    #[must_use]
    pub fn read(headers: &HeaderMap, now: SystemTime) -> Self {
        if is_from_cache(headers) {
            return Self::default();
        }
        Self { limits: read_limits(headers, now), retry_after: read_retry_after(headers, now) }
    }

    /// The limits. Empty if the server announced none, or in no form that is known.
    #[must_use]
    pub fn limits(&self) -> &[ServerLimit] {
        &self.limits
    }

    /// The time of `Retry-After`: not before the response arrived.
    #[must_use]
    pub fn retry_after(&self) -> Option<SystemTime> {
        self.retry_after
    }

    /// The last reset of the limits of which nothing remains. `None` if there are none, or without a reset.
    #[must_use]
    pub fn exhausted_until(&self) -> Option<SystemTime> {
        let exhausted = self.limits.iter().filter(|limit| limit.is_exhausted());
        exhausted.filter_map(ServerLimit::resets_at).max()
    }

    /// The time before which the server wants no further request: that of `Retry-After`, which takes
    /// precedence, else [`exhausted_until`](Self::exhausted_until).
    #[must_use]
    pub fn not_before(&self) -> Option<SystemTime> {
        self.retry_after.or_else(|| self.exhausted_until())
    }
}

impl ServerLimit {
    /// The server's name for it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The partition that the request was counted in, as a key of the server's own (`pk`): a server may count
    /// the requests of each account by itself, say.
    #[must_use]
    pub fn partition_key(&self) -> Option<&[u8]> {
        self.partition_key.as_deref()
    }

    /// Returns the unit that is counted, if the server says that it is not requests: the parameter
    /// `qu` of a policy, or a word in the name of a field. `x-ratelimit-limit-tokens` and
    /// `anthropic-ratelimit-input-tokens-limit` count `tokens`, and `x-ratelimit-complexity-limit`
    /// counts `complexity`.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// How much is admitted in the window.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The window, to the second.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.window
    }

    /// How much remains, rounded down.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// When more will remain, as far as the server says: not before the response arrived.
    #[must_use]
    pub fn resets_at(&self) -> Option<SystemTime> {
        self.resets_at
    }

    /// Whether nothing remains.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.remaining == Some(0)
    }
}

fn is_from_cache(headers: &HeaderMap) -> bool {
    let ages = headers.get_all(AGE).iter().filter_map(|age| ceil_number(age.to_str().ok()?));
    ages.max() > Some(0)
}

fn read_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<SystemTime> {
    let lines = headers.get_all(RETRY_AFTER).iter();
    lines.filter_map(|line| moment(line.to_str().ok()?, now)).max()
}

fn read_limits(headers: &HeaderMap, now: SystemTime) -> Vec<ServerLimit> {
    let policies = structured::policies(headers);
    structured::limits(headers, &policies, now)
        .or_else(|| dialects::draft_06(headers, &policies, now))
        .or_else(|| dialects::others(headers, &policies, now))
        .unwrap_or(policies)
}
