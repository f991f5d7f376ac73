//! Finds the smallest limits that would have admitted all requests of a share of the subjects.
//!
//! For each subject and algorithm, there is a smallest limit that never refuses the subject. If all
//! requests of the subject are admitted, its state does not depend on the limit. So the smallest
//! limit is the largest amount that any request of the subject needs. [`Meters`] measure this
//! maximum in one pass and with exact integers. [`Meters::smallest`] returns the limits for any
//! share of the subjects.
//!
//! ```
//! use tidegate::suggest::Meters;
//!
//! let mut meters = Meters::new(60_000_000)?;
//! for second in [59, 60, 61] {
//!     meters.record(second * 1_000_000, 0, 1)?;
//! }
//! meters.record(100_000_000, 1, 1)?;
//!
//! let limits = meters.smallest("100".parse()?);
//! assert_eq!((limits.fixed_window, limits.sliding_log), (2, 3));
//! assert_eq!(meters.smallest("50".parse()?).sliding_log, 1);
//! # Ok::<(), tidegate::suggest::Error>(())
//! ```

mod bucket;
mod log;
mod share;
mod windows;

use std::fmt;

use bucket::Bucket;
use log::Log;
pub use share::Share;
use windows::{Counter, Fixed};

/// The maximum of a window and of a time, both in microseconds, and of a cost.
pub const MAX: u64 = 1 << 52;

/// The maximum sum of the costs of one subject. Up to this sum, no intermediate result overflows.
pub const TOTAL_MAX: u64 = 1 << 62;

/// The smallest limits, one for each algorithm, all with the same window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit of a fixed window that is aligned to 1970.
    pub fixed_window: u64,
    /// Sliding log.
    pub sliding_log: u64,
    /// Sliding counter.
    pub sliding_counter: u64,
    /// The capacity of a token bucket or of GCRA. It is also the refill in each window.
    pub token_bucket: u64,
}

/// Measures the smallest limits of each subject. The memory contains numbers for each subject, the
/// records of one window, and for each subject the corners of a convex hull of its costs.
#[derive(Debug)]
pub struct Meters {
    window: u64,
    /// The latest time so far.
    now: u64,
    subjects: Vec<Subject>,
    log: Log,
}

#[derive(Debug, Default)]
struct Subject {
    total: u64,
    fixed: Fixed,
    counter: Counter,
    bucket: Bucket,
}

impl Meters {
    /// Creates meters for a window in microseconds.
    ///
    /// # Errors
    ///
    /// Returns an error if the window is 0 or above [`MAX`].
    pub fn new(window: u64) -> Result<Self, Error> {
        if window == 0 || window > MAX {
            let message = format!("a window of {window} µs is not from 1 µs to {MAX} µs");
            return Err(Error { message });
        }
        Ok(Self { window, now: 0, subjects: Vec::new(), log: Log::default() })
    }

    /// Adds the next request. `time` is in microseconds, and `subject` is the number of the
    /// subject, counted from 0. A cost of 0 does not raise a limit. If the time is earlier than a
    /// previous time, the latest previous time is used instead.
    ///
    /// # Errors
    ///
    /// Returns an error if the time or the cost is above [`MAX`], if the costs of the subject add
    /// up to more than [`TOTAL_MAX`], or if `usize` is too small for the number of the subject.
    pub fn record(&mut self, time: u64, subject: u32, cost: u64) -> Result<(), Error> {
        let beyond = |what: &str, value: u64, bound: u64| Error {
            message: format!("{what} {value} is above {bound}, too large for --suggest"),
        };
        if time > MAX || cost > MAX {
            let (what, value) = if time > MAX { ("the time", time) } else { ("the cost", cost) };
            return Err(beyond(what, value, MAX));
        }
        self.now = self.now.max(time);
        let time = self.now;
        let Ok(place) = usize::try_from(subject) else {
            return Err(beyond("the subject's number", subject.into(), usize::MAX as u64));
        };
        if place >= self.subjects.len() {
            self.subjects.resize_with(place + 1, Subject::default);
        }
        let Some(state) = self.subjects.get_mut(place).filter(|_| cost > 0) else {
            return Ok(());
        };
        let before = state.total;
        state.total += cost;
        if state.total > TOTAL_MAX {
            return Err(beyond("a subject's cost in all,", state.total, TOTAL_MAX));
        }
        state.fixed.record(self.window, time, cost);
        state.counter.record(self.window, time, cost);
        state.bucket.record(self.window, time, before, cost);
        self.log.record(self.window, time, place, cost);
        Ok(())
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.now = 0;
        self.subjects.clear();
        self.log = Log::default();
    }

    /// Returns the number of subjects.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.subjects.len()
    }

    /// Returns, for each algorithm, the smallest limit that never refuses at least this share of
    /// the subjects, or 0 if there were no requests.
    #[must_use]
    pub fn smallest(&self, share: Share) -> Limits {
        let smallest = |limit: &dyn Fn(&Subject) -> u64| {
            share.smallest(self.subjects.iter().map(limit).collect())
        };
        Limits {
            fixed_window: smallest(&|subject| subject.fixed.limit()),
            sliding_counter: smallest(&|subject| subject.counter.limit()),
            token_bucket: smallest(&|subject| subject.bucket.limit()),
            sliding_log: share.smallest(self.log.limits(self.subjects.len())),
        }
    }

    /// Returns, for each algorithm, the number of subjects that the limit in `limits` never
    /// refuses.
    #[must_use]
    pub fn content(&self, limits: &Limits) -> Limits {
        let content = |limit: u64, of: &dyn Fn(&Subject) -> u64| {
            self.subjects.iter().filter(|subject| of(subject) <= limit).count() as u64
        };
        let log = self.log.limits(self.subjects.len());
        Limits {
            fixed_window: content(limits.fixed_window, &|subject| subject.fixed.limit()),
            sliding_counter: content(limits.sliding_counter, &|subject| subject.counter.limit()),
            token_bucket: content(limits.token_bucket, &|subject| subject.bucket.limit()),
            sliding_log: log.into_iter().filter(|&own| own <= limits.sliding_log).count() as u64,
        }
    }
}

/// A number out of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Divides a sum by `divisor` and rounds up. The bounds of this module ensure that the result fits
/// into 64 bits.
fn scaled_up(sum: u128, divisor: u64) -> u64 {
    u64::try_from(sum.div_ceil(u128::from(divisor))).unwrap_or(u64::MAX)
}
