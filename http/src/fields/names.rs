//! Names of fields that the crate `http` does not define.

use http::HeaderName;
use http::header::RETRY_AFTER;

/// `RateLimit`
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy`
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// `RateLimit-Limit` of drafts 00 to 06
pub const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
/// `RateLimit-Remaining` of drafts 00 to 06
pub const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
/// `RateLimit-Reset` of drafts 00 to 06
pub const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// `RateLimit-Warning`, a list of the names of the policies that
/// [warn](tidegate_core::Policy::warn_at). No draft defines this field.
pub const RATELIMIT_WARNING: HeaderName = HeaderName::from_static("ratelimit-warning");
/// `X-RateLimit-Limit`
pub const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
/// `X-RateLimit-Remaining`
pub const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
/// `X-RateLimit-Reset`
pub const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The fields of [`FieldFormat::Ietf11`](super::FieldFormat::Ietf11), and the field of warnings.
/// Pass these names to a CORS layer, which exposes the fields with `Access-Control-Expose-Headers`.
/// Scripts of another origin can read only exposed fields.
///
/// ```
/// use tidegate_http::fields::names::EXPOSED;
///
/// let names = EXPOSED.map(|name| name.to_string());
/// assert_eq!(names, ["ratelimit", "ratelimit-policy", "ratelimit-warning", "retry-after"]);
/// ```
pub const EXPOSED: [HeaderName; 4] = [RATELIMIT, RATELIMIT_POLICY, RATELIMIT_WARNING, RETRY_AFTER];
