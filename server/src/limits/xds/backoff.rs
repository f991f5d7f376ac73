//! The waits between two connection attempts.

use std::time::Duration;

/// The minimum of a wait before jitter. A smaller wait in the settings is replaced by this minimum.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The waits between two connection attempts.
///
/// The first wait is `initial`. Each further wait is `factor` times as long as the previous one, up
/// to `max`: with a factor of 2, for example 10 s, 20 s, 40 s, 60 s, 60 s. With a factor of 1 or
/// less, such as the default of envoyproxy/ratelimit, every wait is `initial`. Jitter shortens each
/// wait by a random part of up to half, so that many servers do not reconnect together.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BackoffSettings {
    /// The first wait; at least 100 ms.
    pub initial: Duration,
    /// The maximum wait.
    pub max: Duration,
    /// The factor by which the wait grows after each failed attempt.
    pub factor: f64,
    /// Whether waits are shortened at random.
    pub has_jitter: bool,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_secs(60),
            factor: 0.5,
            has_jitter: true,
        }
    }
}

impl BackoffSettings {
    /// Returns the minimum and the maximum pause after a refused response. The client reads the
    /// next response only after the pause. By default, the pauses are from 100 ms to 5 s.
    pub(super) fn pauses(&self) -> (Duration, Duration) {
        let initial = self.initial.max(MIN_WAIT);
        (initial / 100, initial / 2)
    }

    /// Returns the wait after a failure. `failures` is the number of failures directly before this
    /// failure. `share` is a random number from 0 to 1 for the jitter.
    #[allow(clippy::float_arithmetic, reason = "a wait need not be exact")]
    fn wait(&self, failures: i32, share: f64) -> Duration {
        let (initial, max) = (self.initial.max(MIN_WAIT), self.max.max(MIN_WAIT));
        // If the factor is NaN, `max` returns 1.
        let factor = self.factor.max(1.0);
        let grown = initial.as_secs_f64() * factor.powi(failures);
        // The conversion fails if `grown` is larger than any duration. Then the wait is `max`.
        let wait = Duration::try_from_secs_f64(grown).map_or(max, |wait| wait.min(max));
        if self.has_jitter { wait - wait.mul_f64(share / 2.0) } else { wait }
    }
}

/// The waits of one client.
#[derive(Debug)]
pub(super) struct Backoff {
    settings: BackoffSettings,
    failures: i32,
}

impl Backoff {
    pub(super) fn new(settings: BackoffSettings) -> Self {
        Self { settings, failures: 0 }
    }

    pub(super) fn next(&mut self) -> Duration {
        let wait = self.settings.wait(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(factor: f64) -> BackoffSettings {
        BackoffSettings { factor, has_jitter: false, ..BackoffSettings::default() }
    }

    fn seconds(settings: BackoffSettings) -> Vec<u64> {
        (0..5).map(|failures| settings.wait(failures, 0.0).as_secs()).collect()
    }

    #[test]
    fn waits_grow_by_the_factor_up_to_the_maximum() {
        assert_eq!(seconds(settings(2.0)), [10, 20, 40, 60, 60]);
        assert_eq!(seconds(settings(1.5)), [10, 15, 22, 33, 50]);
    }

    #[test]
    fn a_factor_of_one_or_less_keeps_the_first_wait() {
        for factor in [1.0, 0.5, 0.0, -2.0, f64::NAN] {
            let waits = seconds(settings(factor));
            assert!(waits.iter().all(|&wait| wait == 10), "{factor}: {waits:?}");
        }
    }

    #[test]
    fn no_settings_make_a_wait_of_nothing_or_for_ever() {
        let (zero, long) = (Duration::ZERO, Duration::MAX);
        for (initial, max) in [(zero, zero), (zero, long), (long, zero), (long, long)] {
            for factor in [0.0, 2.0, f64::INFINITY, f64::NAN, -1.0] {
                let settings = BackoffSettings { initial, max, factor, has_jitter: false };
                for failures in [0, 1, 1_000, i32::MAX] {
                    let wait = settings.wait(failures, 0.0);
                    assert!(
                        (MIN_WAIT..=max.max(MIN_WAIT)).contains(&wait),
                        "{settings:?}: {wait:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn jitter_takes_up_to_a_half_off() {
        let settings = BackoffSettings { has_jitter: true, ..settings(1.0) };
        let waits = [0.0, 0.5, 1.0].map(|share| settings.wait(0, share).as_millis());
        assert_eq!(waits, [10_000, 7_500, 5_000]);
    }

    #[test]
    fn waits_begin_anew_after_a_reset() {
        let mut backoff = Backoff::new(settings(2.0));
        assert_eq!([backoff.next(), backoff.next()].map(|wait| wait.as_secs()), [10, 20]);
        backoff.reset();
        assert_eq!(backoff.next().as_secs(), 10);
    }
}
