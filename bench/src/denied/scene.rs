//! Loads of which nine tenths are refused.

use std::fmt;

use tidegate_redis::Policy;

use crate::Outcome;

/// Who asks, how often, and under what policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scene {
    /// A tenth of the requests are by many callers within their limits, the rest by a hundred who
    /// have been shut out for a while.
    ShutOut,
    /// Every caller asks for ten times what its window admits.
    Window,
    /// Every caller asks ten times as often as its bucket refills: after each request that is admitted
    /// one has to ask when the next will be.
    Bucket,
}

pub(crate) const SCENES: [Scene; 3] = [Scene::ShutOut, Scene::Window, Scene::Bucket];

/// Callers who are shut out, or overrun their buckets.
pub(crate) const FEW: usize = 100;

/// Requests by each caller who overruns a window of a tenth of that.
const PER_WINDOW: usize = 1_000;

impl Scene {
    pub(crate) fn policy(self) -> Outcome<Policy> {
        Ok(match self {
            Self::ShutOut => "out: token-bucket 1000/1m burst 1000 block 15m".parse()?,
            Self::Window => "window: fixed-window 100/24h".parse()?,
            Self::Bucket => "bucket: token-bucket 100/1s burst 1".parse()?,
        })
    }

    /// Who makes the request of this number.
    pub(crate) fn subject(self, number: usize, calls: usize) -> String {
        let who = match self {
            Self::ShutOut if number.is_multiple_of(10) => FEW + number / 10 % 1_000,
            Self::ShutOut | Self::Bucket => number % FEW,
            Self::Window => number % (calls / PER_WINDOW).max(1),
        };
        format!("user-{who:06}")
    }

    /// Microseconds after the start.
    pub(crate) fn time(self, number: usize) -> u64 {
        match self {
            Self::Bucket => number as u64 / FEW as u64 * 1_000,
            Self::ShutOut | Self::Window => 0,
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutOut => "a tenth within their limits, the others are shut out",
            Self::Window => "everybody overruns a window tenfold",
            Self::Bucket => "everybody overruns a bucket tenfold, one at a time",
        })
    }
}
