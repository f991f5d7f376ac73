//! Loads of which nine tenths are denied.

use std::fmt;

use tidegate_redis::Policy;

use crate::Outcome;

/// Callers, their rate, and their policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// A tenth of the requests are by many callers within their limits, the rest by a hundred
    /// callers that are blocked.
    Blocked,
    /// Every caller asks for ten times what its window admits.
    Window,
    /// Every caller asks ten times as often as its bucket refills: after each request that is
    /// admitted one has to ask when the next will be.
    Bucket,
}

pub(crate) const SCENARIOS: [Scenario; 3] = [Scenario::Blocked, Scenario::Window, Scenario::Bucket];

/// Number of callers that are blocked or overrun their buckets.
pub(crate) const FEW: usize = 100;

/// Requests by each caller that overruns a window of a tenth of that.
const PER_WINDOW: usize = 1_000;

impl Scenario {
    pub(crate) fn policy(self) -> Outcome<Policy> {
        Ok(match self {
            Self::Blocked => "out: token-bucket 1000/1m burst 1000 block 15m".parse()?,
            Self::Window => "window: fixed-window 100/24h".parse()?,
            Self::Bucket => "bucket: token-bucket 100/1s burst 1".parse()?,
        })
    }

    /// Subject of the request of a number.
    pub(crate) fn subject(self, number: usize, calls: usize) -> String {
        let caller = match self {
            Self::Blocked if number.is_multiple_of(10) => FEW + number / 10 % 1_000,
            Self::Blocked | Self::Bucket => number % FEW,
            Self::Window => number % (calls / PER_WINDOW).max(1),
        };
        format!("user-{caller:06}")
    }

    /// Microseconds after the start.
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
