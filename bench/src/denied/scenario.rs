//! Defines loads in which nine of ten requests are denied.

use std::fmt;

use tidegate_redis::Policy;

use crate::Outcome;

/// The callers, their rate, and their policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// A hundred blocked callers send nine of ten requests. Many callers within their limits send
    /// the others.
    Blocked,
    /// Each caller sends ten times as many requests as its window admits.
    Window,
    /// Each caller sends requests ten times as fast as its bucket refills. After each admitted
    /// request, the store refuses one request. The cache then refuses requests until the end of the
    /// wait.
    Bucket,
}

pub(crate) const SCENARIOS: [Scenario; 3] = [Scenario::Blocked, Scenario::Window, Scenario::Bucket];

/// The number of callers that are blocked or exceed their buckets.
pub(crate) const FEW: usize = 100;

/// The number of requests of each caller in the scenario `Window`.
const PER_WINDOW: usize = 1_000;

impl Scenario {
    pub(crate) fn policy(self) -> Outcome<Policy> {
        Ok(match self {
            Self::Blocked => "out: token-bucket 1000/1m burst 1000 block 15m".parse()?,
            Self::Window => "window: fixed-window 100/24h".parse()?,
            Self::Bucket => "bucket: token-bucket 100/1s burst 1".parse()?,
        })
    }

    pub(crate) fn subject(self, number: usize, calls: usize) -> String {
        let caller = match self {
            Self::Blocked if number.is_multiple_of(10) => FEW + number / 10 % 1_000,
            Self::Blocked | Self::Bucket => number % FEW,
            Self::Window => number % (calls / PER_WINDOW).max(1),
        };
        format!("user-{caller:06}")
    }

    /// Returns the time of a request in microseconds after the start.
    pub(crate) fn time(self, number: usize) -> u64 {
        match self {
            Self::Bucket => number as u64 / FEW as u64 * 1_000,
            Self::Blocked | Self::Window => 0,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocked => "a tenth within their limits, the others blocked",
            Self::Window => "all callers overrun a window tenfold",
            Self::Bucket => "all callers overrun a bucket tenfold, one at a time",
        })
    }
}
