//! Waiting by retries. A request with a window or a log waits by retries, because the store cannot
//! reserve a place for it.

use std::time::Duration;

use super::detached::{DetachedRequest, is_failed_closed};
use super::permits::{WaitLimits, Waiters};
use super::too_many_waiters;
use crate::call::Operation;
use crate::decision::Decision;
use crate::error::Error;
use crate::store::Store;
use crate::sync::time::{Instant, sleep};

/// The maximum jitter, which is the random time that is added to `retry_after`.
const MAX_JITTER: Duration = Duration::from_secs(1);

/// The minimum pause between two acquires, which is the resolution of Tokio's timers. It also
/// prevents a busy loop if a store refuses with a wait of zero.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// Acquires, and retries after each refusal, until `max_wait` has passed.
pub(super) async fn acquire<S: Store + 'static>(
    mut request: DetachedRequest<S>,
    max_wait: Duration,
    waiters: &Waiters,
    limits: WaitLimits,
) -> Result<Decision, Error> {
    let started = Instant::now();
    let mut permit = None;
    loop {
        let answer;
        (request, answer) = request.send(Operation::Acquire).await;
        let decision = answer?;
        if decision.is_allowed() {
            let has_waited = permit.is_some();
            return Ok(if has_waited { decision.with_wait(started.elapsed()) } else { decision });
        }
        let Some(pause) = next_try(&decision, max_wait.saturating_sub(started.elapsed())) else {
            return Ok(decision);
        };
        if permit.is_none() {
            let acquired = waiters.acquire_permit(limits.max_waiters);
            permit = Some(acquired.ok_or_else(|| too_many_waiters(limits.max_waiters))?);
        }
        sleep(pause).await;
        if started.elapsed() > max_wait {
            return Ok(decision);
        }
    }
}

/// Returns the pause before the next retry, or `None` if no retry could succeed within `time_left`.
fn next_try(refusal: &Decision, time_left: Duration) -> Option<Duration> {
    let wait = refusal.retry_after().filter(|_| !is_failed_closed(refusal))?.max(MIN_SLEEP);
    let spare = time_left.checked_sub(wait)?;
    Some(wait + jitter(spare.min(wait / 8).min(MAX_JITTER)))
}

/// Returns a random duration up to `max`. Callers that were refused together then retry at
/// different times.
fn jitter(max: Duration) -> Duration {
    max.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Verdict};

    fn refused_for(micros: u64) -> Decision {
        let wait = Duration::from_micros(micros);
        Decision::one(Verdict::new(Outcome::Denied, 1).with_retry_after(Some(wait)))
    }

    #[test]
    fn the_next_try_is_neither_before_retry_after_nor_after_the_maximum_wait() {
        for (wait, left) in [(8_000_000, 9_000_000), (8_000_000, 8_000_001), (100_000, 100_000)] {
            for _ in 0..1_000 {
                let rest = next_try(&refused_for(wait), Duration::from_micros(left)).unwrap();
                assert!(Duration::from_micros(wait) <= rest && rest <= Duration::from_micros(left));
            }
        }
        assert_eq!(next_try(&refused_for(100_001), Duration::from_millis(100)), None);
    }

    #[test]
    fn tries_scatter_over_an_eighth_of_the_wait_and_at_most_a_second() {
        for (wait, most) in [(80_000, 10_000), (3_600_000_000, 1_000_000)] {
            let rests = (0..1_000).filter_map(|_| next_try(&refused_for(wait), Duration::MAX));
            let rests: Vec<u64> = rests.map(|rest| crate::time::micros_of(rest) - wait).collect();
            assert!(rests.iter().all(|&beyond| beyond <= most));
            for tenth in 0..10 {
                let bounds = most * tenth / 10..=most * (tenth + 1) / 10;
                assert!(rests.iter().any(|beyond| bounds.contains(beyond)), "{wait} {tenth}");
            }
        }
    }
}
