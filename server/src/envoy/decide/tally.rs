//! The statistics of one descriptor in one request.

use std::ops::Range;
use std::sync::Arc;

use tidegate_core::Verdict;

use super::StatKey;
use crate::observe::activity::Usage;

/// The share of a limit above which hits count as near the limit, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearLimitRatio(u32);

impl NearLimitRatio {
    const WHOLE: u32 = 1_000_000;

    /// Parses a number from 0 to 1 with at most six decimals, such as `0.8`. Returns `None` for any
    /// other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() > 1 || decimals.len() > 6 || !is_digits(whole) || !is_digits(decimals) {
            return None;
        }
        let millionths: u32 = format!("0{whole}{decimals:0<6}").parse().ok()?;
        (millionths <= Self::WHOLE && text.len() > text.matches('.').count())
            .then_some(Self(millionths))
    }

    fn part_of(self, limit: u64) -> u64 {
        let part = u128::from(limit) * u128::from(self.0) / u128::from(Self::WHOLE);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl Default for NearLimitRatio {
    fn default() -> Self {
        Self(800_000)
    }
}

/// The numbers that one descriptor of a request adds to the statistics of its limit, as in
/// envoyproxy/ratelimit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The key of the limit in statistics.
    pub key: Arc<StatKey>,
    /// The number of all hits.
    pub total: u64,
    /// The number of hits beyond the limit.
    pub over: u64,
    /// The number of hits beyond the limit that the [cache](super::Decider::with_deny_cache)
    /// refused without the store.
    pub over_in_cache: u64,
    /// The number of admitted hits that are near the limit: see [`NearLimitRatio`].
    pub near: u64,
    /// The number of admitted hits. As in envoyproxy/ratelimit, a `rate_limit:` can admit hits of a
    /// request that another limit refuses. A `policy:` admits hits only if the request is admitted.
    pub within: u64,
    /// The number of hits beyond the limit, if the limit is a shadow.
    pub shadow: u64,
    /// The key of the configured limit. It consists of keys and configured values, without the
    /// values of requests.
    pub(crate) limit_key: Arc<StatKey>,
    pub(crate) subject: Vec<u8>,
    /// The verdict of a policy that refused the hits.
    pub(crate) refusal: Option<Verdict>,
    /// The usage after the decision, if it is known.
    pub(crate) usage: Option<Usage>,
}

/// The limit and the subject to which a tally belongs.
pub(super) struct Of {
    pub(super) key: Arc<StatKey>,
    pub(super) limit_key: Arc<StatKey>,
    pub(super) subject: Vec<u8>,
}

impl Tally {
    /// Returns the tally of `hits` that changed the count from `before` to `after`. The two counts
    /// are equal if the hits were not counted.
    pub(super) fn new(
        of: Of,
        limit: u64,
        Range { start: before, end: after }: Range<u64>,
        hits: u64,
        is_shadow: bool,
        ratio: NearLimitRatio,
    ) -> Self {
        let near_limit = ratio.part_of(limit);
        let mut tally = Self::empty(of, hits);
        if after > limit {
            tally.over = if before >= limit { hits } else { after - limit };
            tally.near =
                if before >= limit { 0 } else { limit - near_limit.max(before).min(limit) };
            tally.shadow = if is_shadow { tally.over } else { 0 };
        } else {
            tally.within = hits;
            // The count can be lower than expected, because a concurrent refund may have reduced
            // it.
            tally.near = after.saturating_sub(near_limit.max(before));
        }
        tally
    }

    /// Returns the tally of hits that were refused and not counted.
    pub(super) fn refused(of: Of, hits: u64, is_shadow: bool) -> Self {
        let shadow = if is_shadow { hits } else { 0 };
        Self { over: hits, shadow, ..Self::empty(of, hits) }
    }

    /// Returns the tally of hits that are neither admitted nor beyond the limit: their policy would
    /// admit them, but another limit refuses the request.
    pub(super) fn empty(of: Of, hits: u64) -> Self {
        let Of { key, limit_key, subject } = of;
        Self {
            key,
            total: hits,
            over: 0,
            over_in_cache: 0,
            near: 0,
            within: 0,
            shadow: 0,
            limit_key,
            subject,
            refusal: None,
            usage: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(limit: u64, after: u64, hits: u64) -> (u64, u64, u64) {
        let counts = after.saturating_sub(hits)..after;
        let key = Arc::new(StatKey::new("k"));
        let place = Of { key: Arc::clone(&key), limit_key: key, subject: Vec::new() };
        let tally = Tally::new(place, limit, counts, hits, false, NearLimitRatio::default());
        (tally.over, tally.near, tally.within)
    }

    #[test]
    fn g17_hits_near_and_over_the_limit() {
        for (limit, after, hits, over, near) in [
            (15, 11, 1, 0, 0),
            (15, 13, 1, 0, 1),
            (15, 16, 1, 1, 0),
            (20, 5, 3, 0, 0),
            (8, 7, 2, 0, 1),
            (20, 19, 3, 0, 3),
            (20, 22, 3, 2, 1),
            (20, 22, 7, 2, 4),
            (10, 30, 3, 3, 0),
        ] {
            let within = if after > limit { 0 } else { hits };
            assert_eq!(tally(limit, after, hits), (over, near, within), "{limit} {after} {hits}");
        }
    }

    #[test]
    fn b71_no_number_wraps_if_fewer_are_counted_than_there_were_hits() {
        // envoyproxy/ratelimit computes `before = after - hits`, which wraps if `after` is less
        // than `hits`.
        assert_eq!(tally(10, 3, 5), (0, 0, 5));
        assert_eq!(tally(10, 0, u64::MAX), (0, 0, u64::MAX));
        assert_eq!(tally(0, 1, 1), (1, 0, 0));
        assert_eq!(tally(u64::MAX, u64::MAX, u64::MAX).0, 0);
    }

    #[test]
    fn a_ratio_is_a_decimal_from_0_to_1() {
        for (text, millionths) in
            [("0.8", 800_000), ("1", 1_000_000), ("0", 0), (".5", 500_000), ("1.0", 1_000_000)]
        {
            assert_eq!(NearLimitRatio::parse(text), Some(NearLimitRatio(millionths)), "{text}");
        }
        for text in ["", ".", "1.1", "-0.5", "2", "0.1234567", "0,8", "a", "10.0"] {
            assert_eq!(NearLimitRatio::parse(text), None, "{text}");
        }
    }
}
