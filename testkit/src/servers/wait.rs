//! Waits for conditions, so that tests need not sleep.

use std::time::{Duration, Instant};

use super::error::Error;

/// The time between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// Polls `condition` until it returns a value. Returns an error that names `what` if it returned
/// none `within` the time.
///
/// The time is measured in real time even if tokio's clock is paused, because the condition depends
/// on other processes.
///
/// ```
/// use std::time::Duration;
/// use tidegate_testkit::servers::eventually;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let file = std::env::temp_dir();
/// let exists = async || file.exists().then_some("here");
/// let answer = eventually(Duration::from_secs(1), "the file", exists).await;
/// assert_eq!(answer.unwrap(), "here");
/// # });
/// ```
// This takes a plain closure that returns a future, not an `AsyncFnMut`: a caller that spawns this
// function could not prove that the futures of an `AsyncFnMut` are `Send`.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    within: Duration,
    what: &str,
    mut condition: impl FnMut() -> F,
) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if start.elapsed() >= within {
            return Err(Error::new(format!("waited {within:?} in vain for {what}")));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
