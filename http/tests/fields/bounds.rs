//! Checks that pass for any fields. The fuzz target `fields` and property tests run them.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_core::MAX_SPAN;
use tidegate_http::fields::{ServerLimit, ServerLimits};

/// The names of the fields that are read.
pub(crate) const NAMES: [&str; 20] = [
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "ratelimit-resettime",
    "ratelimit-name",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-resource",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "x-shopify-shop-api-call-limit",
    "retry-after",
    "age",
];

/// Converts bytes to fields. In each line, the first byte chooses the name, and the other bytes are
/// the value.
pub(crate) fn headers(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n') {
        let Some((&first, value)) = line.split_first() else { continue };
        let name = HeaderName::from_static(NAMES[usize::from(first) % NAMES.len()]);
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    headers
}

/// Reads the fields and checks all bounds. Then writes the limits, reads them again and compares.
pub(crate) fn check(headers: &HeaderMap) {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_774_540_800);
    let latest = now + MAX_SPAN;
    let announced = ServerLimits::read(headers, now);
    let resets = announced.limits().iter().filter_map(ServerLimit::resets_at);
    for time in resets.chain(announced.retry_after()).chain(announced.not_before()) {
        assert!(now <= time && time <= latest, "{time:?} of {headers:?}");
    }
    assert!(announced.limits().len() <= 2048 + 64);

    let mut again = HeaderMap::new();
    let Some(value) = written(announced.limits(), now) else { return };
    again.insert("ratelimit", value);
    let read_again = ServerLimits::read(&again, now);
    let state = |limit: &ServerLimit| {
        let partition_key = limit.partition_key().map(<[u8]>::to_vec);
        (
            limit.name().unwrap_or_default().to_owned(),
            limit.remaining(),
            limit.resets_at(),
            partition_key,
        )
    };
    let same = announced.limits().iter().take(1024).map(state);
    assert!(read_again.limits().iter().map(state).eq(same), "{again:?} of {headers:?}");
}

/// Returns the limits in the syntax of draft 11, if this syntax can represent them.
fn written(limits: &[ServerLimit], now: SystemTime) -> Option<HeaderValue> {
    let mut list = sfv::ListSerializer::new();
    for limit in limits.iter().take(1024) {
        let name = sfv::StringRef::from_str(limit.name().unwrap_or_default()).ok()?;
        let remaining = sfv::Integer::try_from(limit.remaining()?).ok()?;
        let mut item = list.bare_item(name).parameter(sfv::key_ref("r"), remaining);
        if let Some(reset) = limit.resets_at() {
            let span = reset.duration_since(now).ok()?;
            // A number of 10⁹ or more would be a time since 1970.
            if span.subsec_nanos() > 0 || span.as_secs() >= 1_000_000_000 {
                return None;
            }
            item = item.parameter(sfv::key_ref("t"), sfv::Integer::try_from(span.as_secs()).ok()?);
        }
        if let Some(key) = limit.partition_key() {
            let _ = item.parameter(sfv::key_ref("pk"), key);
        }
    }
    let text = list.finish().filter(|text| text.len() <= 64 * 1024)?;
    HeaderValue::try_from(text).ok()
}
