//! The clocks of a simulation's nodes and server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use tidegate_core::{Clock, Timestamp};

use super::time::Time;

/// A clock in virtual time. The clock can run slow or fast, and a test can step the clock. Clones
/// share the same clock.
#[derive(Clone)]
pub struct SimulatedClock {
    time: Time,
    start: u64,
    ppm: i64,
    stepped: Arc<AtomicI64>,
}

impl SimulatedClock {
    pub(super) fn new(time: Time, start: u64, ppm: i64) -> Self {
        Self { time, start, ppm, stepped: Arc::default() }
    }

    /// Steps the clock by this many microseconds, backwards if the number is negative.
    pub fn step(&self, micros: i64) {
        self.stepped.fetch_add(micros, SeqCst);
    }

    /// Returns the error of the clock's rate, in millionths. A negative error means that the clock
    /// runs slow.
    #[must_use]
    pub fn ppm(&self) -> i64 {
        self.ppm
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        let elapsed = i128::from(self.time.now()) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        let shown = i128::from(self.start) + elapsed + i128::from(self.stepped.load(SeqCst));
        Timestamp::from_micros(u64::try_from(shown.max(0)).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for SimulatedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.now().as_micros();
        f.debug_struct("SimulatedClock").field("now", &now).field("ppm", &self.ppm).finish()
    }
}
