//! Runs several attempts that have the same purpose, such as connections to all addresses of a
//! host. The attempts start one after the other, because any attempt can hang. The first success is
//! the result.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

/// The time after which the next attempt starts although the previous attempt has not ended.
pub(super) const STAGGER: Duration = Duration::from_millis(50);

/// Returns the result of the first attempt that succeeds, and cancels the other attempts.
///
/// Each attempt starts 50 ms after the previous attempt, or as soon as an attempt has failed. If
/// all attempts fail, the result is the last failure. Without attempts, the result is `None`.
pub async fn first_success<T, E, F>(attempts: impl IntoIterator<Item = F>) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut attempts = attempts.into_iter();
    let mut running = FuturesUnordered::new();
    let mut failure = None;
    loop {
        match attempts.next() {
            Some(attempt) => running.push(attempt),
            None if running.is_empty() => return failure.map(Err),
            None => {}
        }
        match timeout(STAGGER, running.next()).await {
            Ok(Some(Ok(success))) => return Some(Ok(success)),
            Ok(Some(Err(error))) => failure = Some(error),
            Ok(None) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    async fn after(millis: u64, outcome: Result<u64, u64>) -> Result<u64, u64> {
        if millis == u64::MAX {
            pending::<()>().await;
        }
        sleep(Duration::from_millis(millis)).await;
        outcome
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_success_wins_whichever_hang_or_fail() {
        const HANGS: u64 = u64::MAX;
        for (attempts, outcome, millis) in [
            (vec![(10, Ok(1)), (0, Ok(2))], Some(Ok(1)), 10),
            (vec![(HANGS, Ok(1)), (10, Ok(2))], Some(Ok(2)), 60),
            (vec![(HANGS, Ok(1)), (HANGS, Ok(2)), (10, Ok(3))], Some(Ok(3)), 110),
            (vec![(10, Err(1)), (10, Ok(2))], Some(Ok(2)), 20),
            (vec![(10, Err(1)), (20, Err(2))], Some(Err(2)), 30),
            (vec![(70, Ok(1)), (HANGS, Ok(2))], Some(Ok(1)), 70),
            (vec![], None, 0),
        ] {
            let start = Instant::now();
            let text = format!("{attempts:?}");
            let attempts = attempts.into_iter().map(|(millis, outcome)| after(millis, outcome));
            assert_eq!(first_success(attempts).await, outcome, "{text}");
            assert_eq!(start.elapsed(), Duration::from_millis(millis), "{text}");
        }
    }
}
