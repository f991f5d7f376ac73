//! Measures whether this machine executes a program at an even speed.
//!
//! On a virtual machine, other machines of the same host can slow a program for tens of
//! milliseconds. The requests of such a period determine the 99th percentile of a latency.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use super::{middle, nanos};
use crate::Outcome;

/// The periods in which this machine was slow.
pub(crate) struct Noise {
    /// The percentage of the time in which the machine was slow.
    percent: u64,
    longest: Duration,
}

impl Noise {
    /// Executes one loop again and again for `span`. The machine is slow if the loop takes more
    /// than twice its median time.
    pub(crate) fn measure(span: Duration) -> Outcome<Self> {
        let started = Instant::now();
        let (mut times, mut before) = (vec![], started);
        while started.elapsed() < span {
            // About 50 µs.
            for number in 0..50_000_u32 {
                black_box(number);
            }
            let now = Instant::now();
            times.push(nanos(now - before)?);
            before = now;
        }
        Ok(Self::from_times(&times))
    }

    fn from_times(times: &[u64]) -> Self {
        let median = middle(times.to_vec());
        let slow = times.split(|time| *time <= 2 * median).map(|period| period.iter().sum::<u64>());
        let (all, longest) = slow.fold((0, 0), |(all, longest), it| (all + it, longest.max(it)));
        let percent = all * 100 / times.iter().sum::<u64>().max(1);
        Self { percent, longest: Duration::from_nanos(longest) }
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "A loop without system calls took more than twice its median time in {} % of the time, at most for {:.0?} \
             without a break. A p99 includes such periods.",
            self.percent, self.longest
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_slow_above_twice_the_median() {
        let noise = Noise::from_times(&[10, 21, 21, 10, 10, 10, 30, 10, 20, 10, 10]);
        assert_eq!((noise.percent, noise.longest), (44, Duration::from_nanos(42)));
        let noise = Noise::from_times(&[10]);
        assert_eq!((noise.percent, noise.longest), (0, Duration::ZERO));
    }
}
