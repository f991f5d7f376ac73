//! Waiting by asking again: windows, whose places cannot be booked.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::order::{Order, is_failed_closed};
use super::too_many;
use super::waiters::{Bounds, Waiters};
use crate::{Decision, Error, Operation, Store};

/// The longest that is waited beyond what the store said.
const MOST_JITTER: Duration = Duration::from_secs(1);

/// Tokio's timers are no finer; and a store that refuses with a wait of zero must not be asked in a
/// circle without any rest.
const LEAST_SLEEP: Duration = Duration::from_millis(1);

/// Asks, and if refused, asks again once the refusal is over; never after `max_wait`.
pub(super) async fn acquire<S: Store + 'static>(
    mut order: Order<S>,
    max_wait: Duration,
    waiters: &Waiters,
    bounds: Bounds,
) -> Result<Decision, Error> {
    let started = Instant::now();
    let mut seat = None;
    loop {
        let answer;
        (order, answer) = order.ask(Operation::Acquire).await;
        let decision = answer?;
        if decision.is_allowed() {
            let has_waited = seat.is_some();
            return Ok(if has_waited { decision.booked_in(started.elapsed()) } else { decision });
        }
        let Some(rest) = next_try(&decision, max_wait.saturating_sub(started.elapsed())) else {
            return Ok(decision);
        };
        if seat.is_none() {
            let taken = waiters.take_seat(bounds.max_waiters);
            seat = Some(taken.ok_or_else(|| too_many(bounds.max_waiters))?);
        }
        sleep(rest).await;
        if started.elapsed() > max_wait {
            return Ok(decision);
        }
    }
}

/// When to ask again after a refusal; `None` if there is no use within the time that is `left`.
fn next_try(refusal: &Decision, left: Duration) -> Option<Duration> {
    let wait = refusal.retry_after().filter(|_| !is_failed_closed(refusal))?.max(LEAST_SLEEP);
    let spare = left.checked_sub(wait)?;
    Some(wait + jitter(spare.min(wait / 8).min(MOST_JITTER)))
}

/// A random time up to `most`, so that not all who were refused ask again at one instant.
fn jitter(most: Duration) -> Duration {
    // The standard library's hasher is keyed from the system's randomness, and each one differently:
    // random enough to scatter callers and processes, and no further dependency.
    let random = RandomState::new().hash_one(()) >> 32;
    let most = u64::try_from(most.as_nanos()).unwrap_or(0);
    // At most a second is 2^30 ns: the product is below 2^62.
    Duration::from_nanos((most * random) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Verdict, Wait};

    fn refused_for(micros: u64) -> Decision {
        Decision::one(Verdict::new(Outcome::Denied, 1, 0, Wait::until(micros, 0), micros))
    }

    #[test]
    fn the_next_try_is_never_before_the_promised_time_nor_after_what_is_left() {
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
