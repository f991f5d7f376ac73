//! Policies for costs that are admitted first and used later, such as the chunks of leases. A
//! delayed policy is stricter, so that the original limit is kept at the times at which the costs
//! are used.

use std::time::Duration;

use super::Policy;
use super::error::{Part, PolicyError};
use super::spec::{self, Algorithm};
use crate::time::{micros_of, micros_of_ceil};

impl Policy {
    /// Returns a stricter policy for costs that are used up to `delay` after their admission. If
    /// the returned policy admits the costs, their use never exceeds the limit of `self`.
    ///
    /// # Errors
    ///
    /// Returns an error if a bucket's capacity is not larger than the number of tokens that are
    /// refilled within `delay`. Also returns an error if a number is outside of the bounds within
    /// which every decision is exact.
    pub(crate) fn delayed_by(&self, delay: Duration) -> Result<Self, PolicyError> {
        let algorithm: Algorithm = match self.algorithm().clone() {
            // The policy stays the same, because a leased chunk never outlives its window: a
            // cost is used in the window that admitted it.
            Algorithm::FixedWindow(_)
            | Algorithm::Quota(_)
            | Algorithm::Concurrent(_)
            | Algorithm::FairPool(_) => return Ok(self.clone()),
            Algorithm::SlidingLog(log) => {
                spec::SlidingLog { window: longer(log.window, delay), ..log }.into()
            }
            Algorithm::SlidingCounter(counter) => {
                spec::SlidingCounter { window: longer(counter.window, delay), ..counter }.into()
            }
            Algorithm::TokenBucket(bucket) => {
                let refill = refill_within(&bucket, delay);
                let burst = bucket.burst.checked_sub(refill).filter(|burst| *burst > 0);
                let Some(burst) = burst else {
                    let message = format!(
                        "the capacity of the bucket is {}; it must be above {refill}, the refill within {delay:?}",
                        bucket.burst
                    );
                    return Err(PolicyError::new(message).about(Part::Burst));
                };
                spec::TokenBucket { burst, ..bucket }.into()
            }
        };
        self.with_algorithm(algorithm)?.with_settings_of(self)
    }
}

fn longer(window: Duration, by: Duration) -> Duration {
    window.saturating_add(Duration::from_micros(micros_of_ceil(by)))
}

fn refill_within(bucket: &spec::TokenBucket, delay: Duration) -> u64 {
    let (refill, delay) = (u128::from(bucket.refill), u128::from(micros_of_ceil(delay)));
    let period = u128::from(micros_of(bucket.period).max(1));
    let tokens = if bucket.is_by_interval() {
        delay.div_ceil(period) * refill
    } else {
        (delay * refill).div_ceil(period)
    };
    u64::try_from(tokens).unwrap_or(u64::MAX)
}
