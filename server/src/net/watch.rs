//! Reads files at regular intervals, and reports their changes.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// The interval between two reads.
pub const INTERVAL: Duration = Duration::from_millis(250);

/// Calls `read` at each [`INTERVAL`]. If two reads in a row return the same contents, and the
/// contents differ from `current`, they replace `current`, and this function calls `changed` with
/// them.
///
/// This function compares contents, so that it finds changes on all file systems and through any
/// link. Two reads must agree, because a file can be incomplete while another program writes it. A
/// change is found within three intervals.
///
/// This function never returns; drop the future to stop it.
pub(crate) async fn follow<T: Clone + PartialEq + Send + 'static>(
    mut current: T,
    read: impl Fn() -> T + Clone + Send + 'static,
    changed: impl Fn(&T),
) {
    let mut before: Option<T> = None;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // An error means that `read` has panicked or that the runtime ends.
        let Ok(now) = tokio::task::spawn_blocking(read.clone()).await else { continue };
        let is_settled = before.as_ref() == Some(&now);
        if is_settled && current != now {
            changed(&now);
            current.clone_from(&now);
        }
        before = Some(now);
    }
}
