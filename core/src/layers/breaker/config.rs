//! Configuration of the circuit breaker.

use std::time::Duration;

use crate::time::micros_of;
use crate::{Clock, SystemClock};

/// The maximum number of probes in flight. The packed state of a circuit has 6 bits for this
/// number.
pub(super) const MAX_PROBES: u32 = 63;

/// Configures a circuit breaker, for [`StoreExt::breaker`](crate::StoreExt::breaker).
///
/// The circuit opens after several **consecutive** failures, and not at a failure rate. If a store
/// is down, every call fails, so consecutive failures show the outage earlier than a rate. If a
/// store still answers some calls, the circuit should stay closed, because only the answers of the
/// store are exact.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::Breaker;
///
/// let breaker = Breaker::new()
///     .failures(5)
///     .open_for(Duration::from_secs(1))
///     .open_for_at_most(Duration::from_secs(30))
///     .probes(2);
/// # let _ = breaker;
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Breaker<C = SystemClock> {
    pub(super) settings: Settings,
    pub(super) clock: C,
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) failures: u64,
    open_for: u64,
    max_open: Option<u64>,
    pub(super) probes: u64,
}

impl Settings {
    /// Returns the duration of an open period in microseconds, after `reopened` consecutive failed
    /// probes.
    pub(super) fn open_micros(&self, reopened: u64) -> u64 {
        let Some(max_open) = self.max_open else {
            return self.open_for;
        };
        let times = u32::try_from(reopened).ok().and_then(|by| 1_u64.checked_shl(by));
        let grown = self.open_for.saturating_mul(times.unwrap_or(u64::MAX));
        grown.min(max_open).max(self.open_for)
    }
}

impl Breaker {
    /// Creates a breaker that opens the circuit for a second after 5 failures, and then sends one
    /// probe at a time.
    pub fn new() -> Self {
        let settings = Settings { failures: 5, open_for: 1_000_000, max_open: None, probes: 1 };
        Self { settings, clock: SystemClock::new() }
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Breaker<C> {
    /// Sets the number of consecutive failures that open the circuit, at least 1. The default is 5.
    pub fn failures(mut self, failures: u32) -> Self {
        self.settings.failures = u64::from(failures.max(1));
        self
    }

    /// Sets the time for which the circuit is open, at least 1 µs. The default is 1 s.
    pub fn open_for(mut self, span: Duration) -> Self {
        self.settings.open_for = micros_of(span).max(1);
        self
    }

    /// Sets the maximum time for which the circuit is open. Each failed probe doubles the time, up
    /// to `span`. By default, the time does not grow.
    pub fn open_for_at_most(mut self, span: Duration) -> Self {
        self.settings.max_open = Some(micros_of(span));
        self
    }

    /// Sets the maximum number of probes in flight while the circuit is half open, 1 to 63. The
    /// default is 1.
    pub fn probes(mut self, probes: u32) -> Self {
        self.settings.probes = u64::from(probes.clamp(1, MAX_PROBES));
        self
    }

    /// Sets the clock that measures the open period. The default is [`SystemClock`].
    pub fn clock<D: Clock>(self, clock: D) -> Breaker<D> {
        Breaker { settings: self.settings, clock }
    }
}
