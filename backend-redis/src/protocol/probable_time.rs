//! The probable time of the server.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use tidegate_core::Timestamp;

/// The time of a server minus the time of this process in microseconds, from the last reply that
/// contained the time of a server. All servers share this number, because it matters only if the
/// clock of this process is wrong.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Returns the probable time of a server. A request contains the windows of its quotas at this
/// time. If the server has another window, the script changes nothing and replies with its time.
#[must_use]
pub fn probable_time() -> Timestamp {
    let ahead = AHEAD.load(Ordering::Relaxed);
    Timestamp::from_micros(own_time().saturating_add_signed(ahead))
}

/// Takes note of the time of a server.
pub(super) fn note(server: Timestamp) {
    let ahead = server.as_micros().cast_signed() - own_time().cast_signed();
    AHEAD.store(ahead, Ordering::Relaxed);
}

fn own_time() -> u64 {
    Timestamp::from(SystemTime::now()).as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probable_time_follows_the_time_of_the_server() {
        const HOUR: u64 = 3_600_000_000;
        for server in [own_time() + 9 * HOUR, own_time() - 9 * HOUR, own_time()] {
            note(Timestamp::from_micros(server));
            let elapsed = probable_time().as_micros().abs_diff(server);
            assert!(elapsed < HOUR, "{elapsed}");
        }
    }
}
