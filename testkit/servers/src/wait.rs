//! Waiting for conditions, so that tests do not need to sleep.

use std::time::{Duration, Instant};

use super::error::Error;

const INTERVAL: Duration = Duration::from_millis(5);

/// Polls `condition` until it returns a value. If `condition` returns no value within the time
/// `within`, returns an error that contains the text `what`.
///
/// The function measures real time even if tokio's clock is paused, because the condition depends
/// on other processes.
///
/// ```
/// use std::time::Duration;
/// use tidegate_test_servers::eventually;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let file = std::env::temp_dir();
/// let exists = async || file.exists().then_some("here");
/// let answer = eventually(Duration::from_secs(1), "the file", exists).await;
/// assert_eq!(answer.unwrap(), "here");
/// # });
/// ```
// The condition is not an `AsyncFnMut`, because this function could not require that its futures
// are `Send`. A caller that spawns this function needs `Send` futures.
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
