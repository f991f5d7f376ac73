//! Shares of a limit, for example for each of several nodes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::error::{PolicyError, shown};
use super::quota::Quota;
use super::rule::gcd;
use super::spec::{self, Algorithm};
use super::{Lapse, Policy};
use crate::time::micros_of;

/// A fraction of a limit, such as a third.
///
/// If each of `n` nodes has a share of `1/n`, the nodes together admit at most the limit, without
/// communication.
///
/// ```
/// use tidegate_core::Share;
///
/// assert_eq!(Share::new(1, 3)?.apply(100), 33);
/// assert!(Share::new(4, 3).is_err());
/// # Ok::<(), tidegate_core::PolicyError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share {
    part: u32,
    /// The denominator, at least `part` and at least 1.
    of: u32,
}

impl Share {
    /// Creates the share `part / of`, from 0 to 1.
    ///
    /// # Errors
    ///
    /// Returns an error if `of` is 0 or if `part` is above `of`.
    pub fn new(part: u32, of: u32) -> Result<Self, PolicyError> {
        if of == 0 || part > of {
            return Err(PolicyError::new(format!(
                "{part}/{of} is not a valid share; it must be 0 to 1, such as `1/3`"
            )));
        }
        Ok(Self { part, of })
    }

    /// Creates the share `1 / of`. If `of` is 0, the share is the whole limit.
    #[cfg(feature = "tokio")]
    pub(crate) const fn one_of(of: u32) -> Self {
        Self { part: 1, of: if of == 0 { 1 } else { of } }
    }

    /// Returns the share of `whole`, rounded down. So the shares of several nodes never add up to
    /// more than `whole`.
    #[must_use]
    pub fn apply(self, whole: u64) -> u64 {
        // The result is at most `whole`, so it fits into 64 bits.
        u64::try_from(u128::from(whole) * u128::from(self.part) / u128::from(self.of))
            .unwrap_or(whole)
    }

    /// Returns the numerator and the denominator.
    pub(super) const fn fraction(self) -> (u32, u32) {
        (self.part, self.of)
    }

    pub(crate) fn rest_of(self, whole: u32) -> u32 {
        let rest = u64::from(whole) * u64::from(self.of - self.part) / u64::from(self.of);
        // The result is at most `whole`, so it fits into 32 bits.
        u32::try_from(rest).unwrap_or(whole)
    }

    /// Returns the smallest limit for which this share is at least 1. Returns `None` for a share of
    /// 0.
    pub(crate) fn min_whole(self) -> Option<u64> {
        (self.part > 0).then(|| u64::from(self.of).div_ceil(u64::from(self.part)))
    }
}

impl FromStr for Share {
    type Err = PolicyError;

    /// Reads a share in its printed form, such as `1/3`.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        let (part, of) = numbers.ok_or_else(|| {
            PolicyError::new(format!("`{}` is not a share, such as `1/3`", shown(text)))
        })?;
        Self::new(part, of)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

impl Policy {
    /// Returns this policy with a share of its limit. Returns `None` if the limit would round down
    /// to 0.
    ///
    /// The limit of a window and the capacity of a bucket are rounded down. So if the shares of
    /// several nodes add up to 1, the nodes together admit at most the limit of this policy. These
    /// settings stay the same: name, window, grain, block, shards, lease, shadow and the settings
    /// for holds.
    ///
    /// The rate of a bucket is scaled exactly. If necessary, the period becomes longer: a third of
    /// 10 tokens per second is 10 tokens per 3 seconds.
    ///
    /// A bucket that refills by intervals would lose tokens if one refill exceeded its capacity. In
    /// this case, the refills are smaller and more frequent, and the rate can be lower than the
    /// exact share: a third of 10 tokens per second with a capacity of 10 is 3 tokens per second
    /// with a capacity of 3.
    ///
    /// ```
    /// use tidegate_core::{Policy, Share};
    ///
    /// let third = Share::new(1, 3)?;
    /// let api: Policy = "api: token-bucket 10/1s burst 100 block 1m".parse()?;
    /// let scaled = api.scaled_to(third)?.unwrap();
    /// assert_eq!(scaled.to_string(), "api: token-bucket 10/3s burst 33 block 1m");
    ///
    /// let login: Policy = "login: sliding-log 2/15m".parse()?;
    /// assert_eq!(login.scaled_to(third)?, None);
    /// # Ok::<(), tidegate_core::PolicyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the scaled rate is outside of the bounds within which every decision is
    /// exact.
    pub fn scaled_to(&self, share: Share) -> Result<Option<Self>, PolicyError> {
        let limit = share.apply(self.limit() - self.raise().unwrap_or(0));
        if limit == 0 {
            return Ok(None);
        }
        let scaled = self.with_limit(limit, |bucket| {
            let rate = Rate::new(bucket.refill, bucket.period).scaled_to(share);
            if bucket.is_by_interval() { rate.in_lumps_of(limit, bucket.period) } else { rate }
        })?;
        let scaled = scaled.with_settings_of(self)?;
        Ok(Some(if self.raise().is_some() { scaled.beyond_limit() } else { scaled }))
    }

    /// Creates a policy with this policy's name and algorithm, and with another limit. For a
    /// bucket, `rate` returns the new rate. All other settings have their default values.
    pub(super) fn with_limit(
        &self,
        limit: u64,
        rate: impl FnOnce(&spec::TokenBucket) -> Rate,
    ) -> Result<Self, PolicyError> {
        match self.algorithm().clone() {
            Algorithm::FixedWindow(spec) => {
                self.with_algorithm(spec::FixedWindow { limit, ..spec })
            }
            Algorithm::SlidingLog(spec) => self.with_algorithm(spec::SlidingLog { limit, ..spec }),
            Algorithm::SlidingCounter(spec) => {
                self.with_algorithm(spec::SlidingCounter { limit, ..spec })
            }
            Algorithm::Concurrent(spec) => self.with_algorithm(spec::Concurrent { limit, ..spec }),
            Algorithm::Quota(spec) => self.with_algorithm(Quota { limit, ..*spec }),
            Algorithm::FairPool(spec) => self.with_algorithm(spec::FairPool { limit, ..spec }),
            Algorithm::TokenBucket(spec) => rate(&spec).first_that_fits(|refill, period| {
                let bucket = spec::TokenBucket { refill, period, burst: limit, ..spec.clone() };
                self.with_algorithm(bucket)
            }),
        }
    }

    /// Copies from `other` all settings that are not numbers of the algorithm. These are the block,
    /// the shards, the lease, the shadow and the settings for holds.
    pub(super) fn with_settings_of(mut self, other: &Self) -> Result<Self, PolicyError> {
        if let Some(block) = other.0.block.as_deref() {
            self = self.block_with(*block)?;
        }
        if let Some(share) = other.max_hold_share() {
            self = self.max_hold_of(share)?;
        }
        if let Some(percent) = other.warn_percent() {
            self = self.warn_at(percent)?;
        }
        if other.0.lapse != Lapse::Stays {
            self.change(&|inner| inner.lapse = other.0.lapse);
            self = self.max_open_holds_of(other.max_open_holds())?;
        }
        if let Some(shards) = other.shards() {
            self = self.sharded(shards)?;
        }
        if other.is_leased() {
            self = self.leased();
        }
        Ok(if other.is_shadow() { self.shadow() } else { self })
    }
}

/// A rate in tokens per microsecond, as a fraction. Its numbers have the type `u128`, so that the
/// product of two 64-bit numbers fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    refill: u128,
    period: u128,
}

impl Rate {
    pub(super) fn new(refill: u64, period: Duration) -> Self {
        Self { refill: refill.into(), period: micros_of(period).into() }
    }

    /// Returns the exact share of the rate. The new period is a multiple of the old period, so that
    /// every tick that divides the old period also divides the new period.
    pub(super) fn scaled_to(self, Share { part, of }: Share) -> Self {
        let (part, of) = (u128::from(part), u128::from(of));
        let common = gcd(of, self.refill * part);
        Self { refill: self.refill * part / common, period: self.period * (of / common) }
    }

    /// Returns a rate that refills at most `max` tokens together, because more tokens would not fit
    /// into the bucket, whose capacity is `max`. The new rate is at most this rate, and its period
    /// is a multiple of `every`.
    fn in_lumps_of(self, max: u64, every: Duration) -> Self {
        let (max, every) = (u128::from(max), u128::from(micros_of(every)));
        if self.refill <= max {
            return self;
        }
        let periods = (max * (self.period / every)).div_ceil(self.refill);
        Self { refill: max, period: every * periods }
    }

    /// Calls `make` with the rate. If `make` fails, calls `make` again with the rate reduced to
    /// lowest terms.
    pub(super) fn first_that_fits(
        self,
        make: impl Fn(u64, Duration) -> Result<Policy, PolicyError>,
    ) -> Result<Policy, PolicyError> {
        let try_make = |rate: Self| match (u64::try_from(rate.refill), u64::try_from(rate.period)) {
            (Ok(refill), Ok(period)) => make(refill, Duration::from_micros(period)),
            _ => Err(PolicyError::new(format!(
                "the scaled rate of {} tokens per {} us is out of bounds",
                rate.refill, rate.period
            ))),
        };
        try_make(self).or_else(|error| try_make(self.in_lowest_terms()).map_err(|_| error))
    }

    fn in_lowest_terms(self) -> Self {
        let common = gcd(self.refill, self.period);
        Self { refill: self.refill / common, period: self.period / common }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(policy: &str, part: u32, of: u32) -> String {
        let policy: Policy = policy.parse().unwrap();
        let share = Share::new(part, of).unwrap();
        policy.scaled_to(share).unwrap().map_or_else(|| "none".into(), |p| p.to_string())
    }

    #[test]
    fn a_share_is_at_most_the_whole() {
        assert!(Share::new(0, 0).unwrap_err().to_string().contains("0/0 is not a valid share"));
        assert!(Share::new(4, 3).unwrap_err().to_string().contains("4/3 is not a valid share"));
        assert_eq!(Share::new(0, 1).unwrap().apply(u64::MAX), 0);
        assert_eq!(Share::new(7, 7).unwrap().apply(u64::MAX), u64::MAX);
        assert_eq!(
            Share::new(u32::MAX - 1, u32::MAX).unwrap().apply(1 << 52),
            (1 << 52) - (1 << 20) - 1
        );
    }

    #[test]
    fn a_share_is_read_as_it_is_printed() {
        for text in ["1/3", "0/1", "4294967294/4294967295"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
        for text in ["", "1", "/3", "1/", "4/3", "1/0", "a/b", "1/3/5", "-1/3"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_smallest_whole_with_a_share_is_known() {
        for (part, of) in [(1, 3), (2, 3), (1, 1), (3, 7), (u32::MAX - 1, u32::MAX), (1, u32::MAX)]
        {
            let share = Share::new(part, of).unwrap();
            let min = share.min_whole().unwrap();
            assert_eq!((share.apply(min), share.apply(min - 1)), (1, 0), "{share}");
        }
        assert_eq!(Share::new(0, 3).unwrap().min_whole(), None);
    }

    #[test]
    fn limits_round_down_and_the_rest_stays() {
        assert_eq!(
            scaled("a: fixed-window 100/1m anchored block 5m shadow", 1, 3),
            "a: fixed-window 33/1m anchored block 5m shadow"
        );
        assert_eq!(scaled("a: sliding-log 9/1m grain 1s", 2, 3), "a: sliding-log 6/1m grain 1s");
        assert_eq!(scaled("a: sliding-counter 5/1d", 1, 2), "a: sliding-counter 2/1d");
        assert_eq!(scaled("a: fixed-window 2/1m", 1, 3), "none");
        assert_eq!(scaled("a: fixed-window 9/1m", 0, 3), "none");
        assert_eq!(scaled("a: gcra 10/1s burst 100", 1, 1), "a: gcra 10/1s burst 100");
    }

    #[test]
    fn rates_are_exact() {
        assert_eq!(scaled("a: gcra 10/1s burst 100", 1, 3), "a: gcra 10/3s burst 33");
        assert_eq!(scaled("a: token-bucket 9/1s burst 7", 2, 3), "a: token-bucket 6/1s burst 4");
        assert_eq!(
            scaled("a: token-bucket 1000000/1s burst 10", 1, 3),
            "a: token-bucket 1000000/3s burst 3"
        );
        // Three fifths of the rate is 3·2^52 tokens per 30 µs. This number of tokens exceeds the
        // maximum of 2^52. In lowest terms, the rate is 2^51 tokens per 5 µs.
        assert_eq!(
            scaled("a: gcra 4503599627370496/6us burst 8", 3, 5),
            "a: gcra 2251799813685248/5us burst 4"
        );
    }

    #[test]
    fn a_bucket_by_intervals_gets_no_more_at_once_than_it_holds() {
        let lumps = |rate: &str| format!("a: token-bucket {rate} by-interval");
        assert_eq!(scaled(&lumps("10/1s burst 100"), 1, 3), lumps("10/3s burst 33"));
        assert_eq!(scaled(&lumps("10/1s burst 10"), 1, 3), lumps("3/1s burst 3"));
        assert_eq!(scaled(&lumps("3/1s burst 5"), 1, 4), lumps("1/2s burst 1"));
        assert_eq!(scaled(&lumps("9/1s burst 9"), 1, 3), lumps("3/1s burst 3"));
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_says_so() {
        // Two fifths of the rate are 2 tokens per 5 periods, but 5 periods are longer than 71
        // years. The rate cannot be reduced to 1 token, because the time for 1 token is not a whole
        // number of microseconds.
        let years = Duration::from_micros(23 * 31_536_000_000_000 + 1);
        let policy = Policy::new("a", spec::TokenBucket::new(1, years).burst(3)).unwrap();
        let error = policy.scaled_to(Share::new(2, 5).unwrap()).unwrap_err();
        assert!(error.to_string().contains("2^51 us"), "{error}");
    }
}
