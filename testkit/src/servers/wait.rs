//! Waiting for a condition instead of sleeping.

use std::time::{Duration, Instant};

use super::Error;

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `condition` has something to give, and fails, naming `what` was waited for, if it has
/// nothing `within` the time.
///
/// Real time counts, even where tokio's clock stands still: what is waited for happens in other processes.
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
// A plain closure that gives a future, because one of the futures of an `AsyncFnMut` cannot be shown to
// be `Send` where a caller spawns it.
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
