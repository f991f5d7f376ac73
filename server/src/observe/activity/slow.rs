use std::cmp::Reverse;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::shown::Cut;
use super::{LimitName, Source, lock};

/// The maximum number of calls that are kept per minute.
const CAPACITY: usize = 10;

/// A slow call, or several calls that the store decided in one batch.
#[derive(Debug, Clone)]
pub(crate) struct SlowCall {
    pub(crate) took: Duration,
    pub(crate) at: SystemTime,
    pub(crate) source: Source,
    /// The number of calls in the batch; 1 without a batch. The other fields describe the first
    /// call.
    pub(crate) calls: usize,
    /// The first limit that refused the call, or the first limit if none refused.
    pub(crate) limit: Option<LimitName>,
    pub(crate) other_limits: usize,
    pub(crate) outcome: &'static str,
    pub(crate) subject: Option<Cut>,
}

/// The slowest calls of the current and of the previous minute.
#[derive(Debug, Default)]
pub(super) struct SlowCalls {
    /// The duration in microseconds that a call must exceed to be kept.
    threshold: AtomicU64,
    minutes: Mutex<Minutes>,
}

#[derive(Debug, Default)]
struct Minutes {
    /// The slowest calls of the current minute, the slowest first.
    current: Vec<SlowCall>,
    previous: Vec<SlowCall>,
}

impl SlowCalls {
    pub(super) fn record(&self, took: Duration, call: impl FnOnce() -> SlowCall) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if micros <= self.threshold.load(Ordering::Relaxed) {
            return;
        }
        let current = &mut lock(&self.minutes).current;
        let place = current.partition_point(|call| call.took >= took);
        if place == CAPACITY {
            return;
        }
        current.truncate(CAPACITY - 1);
        current.insert(place, call());
        if let Some(last) = current.get(CAPACITY - 1) {
            let micros = u64::try_from(last.took.as_micros()).unwrap_or(u64::MAX);
            self.threshold.store(micros, Ordering::Relaxed);
        }
    }

    /// Begins a new minute.
    pub(super) fn rotate(&self) {
        let minutes = &mut *lock(&self.minutes);
        minutes.previous = std::mem::take(&mut minutes.current);
        self.threshold.store(0, Ordering::Relaxed);
    }

    /// Returns the slowest calls of the current and the previous minute, the slowest first.
    pub(super) fn top(&self) -> Vec<SlowCall> {
        let minutes = lock(&self.minutes);
        let mut top: Vec<SlowCall> =
            minutes.current.iter().chain(&minutes.previous).cloned().collect();
        top.sort_by_key(|call| Reverse(call.took));
        top.truncate(CAPACITY);
        top
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(took: Duration) -> SlowCall {
        SlowCall {
            took,
            at: SystemTime::UNIX_EPOCH,
            source: Source::V1,
            calls: 1,
            limit: None,
            other_limits: 0,
            outcome: "admitted",
            subject: None,
        }
    }

    proptest! {
        #[test]
        fn the_slowest_of_two_minutes_are_kept_and_the_slowest_come_first(
            minutes in prop::collection::vec(prop::collection::vec(0..3_000_u64, 0..60), 1..5),
        ) {
            let slow = SlowCalls::default();
            let mut expected: Vec<u64> = Vec::new();
            for (index, minute) in minutes.iter().enumerate() {
                for micros in minute {
                    let took = Duration::from_micros(*micros);
                    slow.record(took, || call(took));
                }
                if index + 2 >= minutes.len() {
                    expected.extend(minute);
                }
                if index + 1 < minutes.len() {
                    slow.rotate();
                }
            }
            // A call that took 0 µs is never kept.
            expected.retain(|micros| *micros > 0);
            expected.sort_unstable_by_key(|micros| Reverse(*micros));
            expected.truncate(CAPACITY);
            let top: Vec<u64> = slow.top().iter().map(|call| u64::try_from(call.took.as_micros()).unwrap()).collect();
            prop_assert_eq!(top, expected);
        }
    }
}
