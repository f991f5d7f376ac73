//! Policies that keep another policy's limit although what they admit is used later.

use std::time::Duration;

use super::error::Part;
use super::{Algorithm, Policy, PolicyError, spec};
use crate::time::{micros_of, micros_of_ceil};

impl Policy {
    /// The policy under which what is admitted, if it is used within `delay`, is never more than this one admits.
    ///
    /// # Errors
    ///
    /// If a bucket is not larger than what comes back within `delay`, or a number is outside of the bounds within which
    /// every decision is exact.
    pub(crate) fn delayed_by(&self, delay: Duration) -> Result<Self, PolicyError> {
        let algorithm: Algorithm = match self.algorithm().clone() {
            // A window ends at the same time for the admission and the use.
            Algorithm::FixedWindow(_) => return Ok(self.clone()),
            Algorithm::SlidingLog(it) => {
                spec::SlidingLog { window: longer(it.window, delay), ..it }.into()
            }
            Algorithm::SlidingCounter(it) => {
                spec::SlidingCounter { window: longer(it.window, delay), ..it }.into()
            }
            Algorithm::TokenBucket(it) => {
                let refill = refill_within(&it, delay);
                let Some(burst) = it.burst.checked_sub(refill).filter(|burst| *burst > 0) else {
                    let message = format!(
                        "{refill} tokens come back within {delay:?}, and the bucket holds {}: it must hold more",
                        it.burst
                    );
                    return Err(PolicyError::new(message).about(Part::Burst));
                };
                spec::TokenBucket { burst, ..it }.into()
            }
        };
        self.with_algorithm(algorithm)?.with_settings_of(self)
    }
}

/// In whole microseconds.
fn longer(window: Duration, by: Duration) -> Duration {
    window.saturating_add(Duration::from_micros(micros_of_ceil(by)))
}

/// The maximum number of tokens by which what comes back in a time exceeds what comes back in a time that is shorter by
/// `delay`.
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
