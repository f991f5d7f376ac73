//! The limits that a server announced.

mod dialects;
mod moment;
mod structured;

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{AGE, RETRY_AFTER};

use moment::{ceil_number, moment};

/// The maximum length of a field in bytes, including all its lines. A longer field counts as
/// malformed.
const MAX_FIELD: usize = 64 * 1024;

/// The maximum number of members of a structured field. By RFC 9651, a parser must support this
/// many members.
const MAX_LIMITS: usize = 1024;

/// The limits that a server announced with a response, in any known format.
///
/// | fields | senders |
/// |---|---|
/// | `RateLimit`, `RateLimit-Policy` in the syntax of drafts 08 to 11 | Cloudflare, Atlassian, [`FieldWriter`](super::FieldWriter) |
/// | `RateLimit` in the syntax of draft 07 | |
/// | `RateLimit-Limit`, `-Remaining`, `-Reset` of drafts 00 to 06 | Kong, GitLab (with the reset since 1970), Docker Hub (`100;w=21600`), many gateways |
/// | `X-RateLimit-*`, `X-Rate-Limit-*` | GitHub, Discord (`Reset-After`), Reddit, Atlassian, Envoy (with its policies), older Cloudflare |
/// | `X-RateLimit-Limit-requests` and similar fields | OpenAI, Kong |
/// | `X-RateLimit-Requests-Limit` and similar fields | Linear |
/// | `anthropic-ratelimit-requests-limit` and similar fields | Anthropic |
/// | `X-Shopify-Shop-Api-Call-Limit: 32/40` | Shopify |
/// | `Retry-After` as seconds or as a date | all |
///
/// # Rules
///
/// * If several formats announce remaining amounts, only the newest format counts: drafts 08 to 11,
///   then draft 07, then drafts 00 to 06, then all others.
/// * A malformed field is ignored as a whole, and so is a field of more than 64 KiB or 1,024
///   members. A structured field with several lines is one list. If another field has several
///   lines, the smallest number or the latest time counts.
/// * A wait or a reset can be a number, an HTTP date, an ISO 8601 time with a zone, or a duration
///   of Go (`6m0s`). A number below 10⁹ means seconds from now. A number from 10⁹ to below 10¹¹
///   means seconds since 1970. A larger number means milliseconds since 1970. Fractions of seconds
///   are rounded up, and fractions of remaining amounts are rounded down.
/// * A time in the past counts as now. A time more than 71 years ahead
///   ([`MAX_SPAN`](tidegate_core::MAX_SPAN)) counts as this maximum.
/// * If `Retry-After` is sent several times, the latest time counts.
/// * `Beta-` fields are not read, because they only announce future limits.
/// * A response from a cache (`Age` above 0) announces nothing.
///
/// Times since 1970 and dates are compared with the clock of this machine, which should be
/// synchronized.
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

/// A limit that a server announced. Each part is present only if the server announced it.
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

    /// Returns the limits. The slice is empty if the server announced no limit in a known format.
    #[must_use]
    pub fn limits(&self) -> &[ServerLimit] {
        &self.limits
    }

    /// Returns the time in `Retry-After`. If this time is in the past, returns the time at which
    /// the response arrived.
    #[must_use]
    pub fn retry_after(&self) -> Option<SystemTime> {
        self.retry_after
    }

    /// Returns the latest reset of all limits whose remaining amount is 0. Returns `None` if no
    /// such limit has a reset.
    #[must_use]
    pub fn exhausted_until(&self) -> Option<SystemTime> {
        let exhausted = self.limits.iter().filter(|limit| limit.is_exhausted());
        exhausted.filter_map(ServerLimit::resets_at).max()
    }

    /// Returns the time before which the server wants no further request. This is the time of
    /// `Retry-After` or, if there is no such field, [`exhausted_until`](Self::exhausted_until).
    #[must_use]
    pub fn not_before(&self) -> Option<SystemTime> {
        self.retry_after.or_else(|| self.exhausted_until())
    }
}

impl ServerLimit {
    /// Returns the name that the server gave to the limit.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the partition key (`pk`) of the partition in which the server counted the request.
    /// For example, a server that counts each account separately has one partition per account.
    #[must_use]
    pub fn partition_key(&self) -> Option<&[u8]> {
        self.partition_key.as_deref()
    }

    /// Returns the unit that the limit counts, or `None` if it counts requests. The server names
    /// the unit in the parameter `qu` of a policy, or in the name of a field. For example,
    /// `x-ratelimit-limit-tokens` and `anthropic-ratelimit-input-tokens-limit` count `tokens`, and
    /// `x-ratelimit-complexity-limit` counts `complexity`.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// Returns the amount that the server admits in the window.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the window, in whole seconds.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.window
    }

    /// Returns the remaining amount, rounded down.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Returns the time at which the remaining amount increases, if the server announced it. The
    /// time is not before the arrival of the response.
    #[must_use]
    pub fn resets_at(&self) -> Option<SystemTime> {
        self.resets_at
    }

    /// Returns `true` if the remaining amount is 0.
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
