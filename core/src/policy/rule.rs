//! From what a caller asks for to exact integers, or a refusal that names the bound.

use std::num::NonZeroU64;
use std::time::Duration;

use super::error::Part;
use super::spec::{self, Algorithm};
use super::{PolicyError, check_exact, show_micros, span};
use crate::algorithm::Unit;
use crate::algorithm::fixed_window::{FixedWindow, Start};
use crate::algorithm::interval_bucket::IntervalBucket;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::token_bucket::TokenBucket;
use crate::time::{MAX_EXACT, MAX_SPAN};

/// The ticks a policy may have, in microseconds, finest first.
const TICKS: [u64; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// An algorithm with the numbers it computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Fixed window.
    FixedWindow(FixedWindow),
    /// Sliding log.
    SlidingLog(SlidingLog),
    /// Sliding counter.
    SlidingCounter(SlidingCounter),
    /// Token bucket with continuous refill, or GCRA.
    TokenBucket(TokenBucket),
    /// Token bucket that refills by intervals.
    IntervalBucket(IntervalBucket),
}

/// What must be the same for a state of one policy to go on under another of its name: the algorithm
/// and its window, but not the limit, nor the rate and the capacity of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateShape {
    /// Start and window (µs) of a fixed window.
    FixedWindow(Start, u64),
    /// Window and grain (µs, 0 for none) of a sliding log.
    SlidingLog(u64, u64),
    /// Window (µs) of a sliding counter.
    SlidingCounter(u64),
    /// A bucket with continuous refill.
    TokenBucket,
    /// Period (µs) of a bucket that refills by intervals.
    IntervalBucket(u64),
}

impl Rule {
    pub(super) fn new(algorithm: &Algorithm) -> Result<Self, PolicyError> {
        match algorithm {
            Algorithm::FixedWindow(spec) => fixed_window(spec).map(Self::FixedWindow),
            Algorithm::SlidingLog(spec) => sliding_log(spec).map(Self::SlidingLog),
            Algorithm::SlidingCounter(spec) => sliding_counter(spec).map(Self::SlidingCounter),
            Algorithm::TokenBucket(spec) if spec.by_interval => {
                interval_bucket(spec).map(Self::IntervalBucket)
            }
            Algorithm::TokenBucket(spec) => {
                token_bucket(spec.refill, spec.period, spec.burst).map(Self::TokenBucket)
            }
            Algorithm::Gcra(spec) => {
                token_bucket(spec.refill, spec.period, spec.burst).map(Self::TokenBucket)
            }
        }
    }

    /// The most that is ever admitted at one instant.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.limit,
            Self::SlidingLog(rule) => rule.limit,
            Self::SlidingCounter(rule) => rule.limit,
            Self::TokenBucket(rule) => rule.capacity,
            Self::IntervalBucket(rule) => rule.capacity,
        }
    }

    /// Microseconds in a tick: the grid on which the rule's answers change.
    #[must_use]
    pub fn tick(&self) -> u64 {
        match self {
            Self::SlidingCounter(rule) => rule.tick.get(),
            Self::TokenBucket(rule) => rule.tick.get(),
            _ => 1,
        }
    }

    /// What a state must have been written under to go on under this rule.
    #[must_use]
    pub fn shape(&self) -> StateShape {
        match self {
            Self::FixedWindow(rule) => StateShape::FixedWindow(rule.start, rule.window.get()),
            Self::SlidingLog(rule) => StateShape::SlidingLog(rule.window, rule.grain),
            Self::SlidingCounter(rule) => {
                StateShape::SlidingCounter(rule.window.get() * rule.tick.get())
            }
            Self::TokenBucket(_) => StateShape::TokenBucket,
            Self::IntervalBucket(rule) => StateShape::IntervalBucket(rule.period.get()),
        }
    }

    /// Whether a place in the future can be booked: with buckets it can.
    #[must_use]
    pub fn can_reserve(&self) -> bool {
        matches!(self, Self::TokenBucket(_) | Self::IntervalBucket(_))
    }

    /// The most records that a state may hold; 0 for algorithms that keep a few numbers only.
    #[must_use]
    pub fn max_records(&self) -> u64 {
        match self {
            Self::SlidingLog(rule) => max_records(rule),
            _ => 0,
        }
    }

    pub(super) fn window(&self) -> u64 {
        match self {
            Self::SlidingLog(rule) => rule.window,
            Self::SlidingCounter(rule) => rule.window.get() * rule.tick.get(),
            Self::FixedWindow(_) | Self::TokenBucket(_) | Self::IntervalBucket(_) => {
                self.max_retention()
            }
        }
    }

    pub(super) fn max_retention(&self) -> u64 {
        match self {
            Self::FixedWindow(rule) => rule.window.get(),
            Self::SlidingLog(rule) => rule.window + rule.grain,
            Self::SlidingCounter(rule) => 2 * rule.window.get() * rule.tick.get(),
            Self::TokenBucket(rule) => rule.full.div_ceil(rule.refill.get()) * rule.tick.get(),
            Self::IntervalBucket(rule) => {
                rule.capacity.div_ceil(rule.refill.get()) * rule.period.get()
            }
        }
    }
}

fn fixed_window(spec: &spec::FixedWindow) -> Result<FixedWindow, PolicyError> {
    let limit = check_exact("limit", spec.limit)?;
    let window = span::check("window", spec.window)?;
    Ok(FixedWindow { limit, window: divisor(window), start: spec.start })
}

fn sliding_log(spec: &spec::SlidingLog) -> Result<SlidingLog, PolicyError> {
    let limit = check_exact("limit", spec.limit)?;
    let window = span::check("window", spec.window)?;
    let grain = spec.grain.map_or(Ok(0), |grain| span::check("grain", grain));
    let grain = grain.map_err(|error| error.about(Part::Grain))?;
    if grain > window {
        return Err(PolicyError::new(format!(
            "the grain {} is longer than the window {}",
            show_micros(grain),
            show_micros(window),
        ))
        .about(Part::Grain));
    }
    let rule = SlidingLog { limit, window, grain };
    let (records, max) = (max_records(&rule), spec::SlidingLog::MAX_RECORDS);
    if records > max {
        let finest = window.div_ceil(max - 2);
        return Err(PolicyError::new(format!(
            "a log with limit {limit} may need {records} records; at most {max} are kept: lower the \
             limit, or give a grain of {} or more",
            show_micros(finest),
        )));
    }
    Ok(rule)
}

/// Each record has a cost of at least 1, and there is at most one for each grain that overlaps the
/// window.
fn max_records(rule: &SlidingLog) -> u64 {
    match rule.grain {
        0 => rule.limit,
        grain => rule.limit.min(rule.window / grain + 2),
    }
}

fn sliding_counter(spec: &spec::SlidingCounter) -> Result<SlidingCounter, PolicyError> {
    let limit = check_exact("limit", spec.limit)?;
    let micros = span::check("window", spec.window)?;
    let fits = |window| limit.checked_mul(window).is_some_and(|product| product <= MAX_EXACT);
    let (tick, window) = finest_tick(micros, fits).ok_or_else(|| {
        PolicyError::new(format!(
            "limit {limit} times window {} is above 2^52 at every tick that divides the window, up \
             to 1s: {} at the coarsest",
            show_micros(micros),
            u128::from(limit) * u128::from(micros / coarsest_tick(micros)),
        ))
    })?;
    Ok(SlidingCounter { limit, window: divisor(window), tick: divisor(tick) })
}

fn token_bucket(count: u64, period: Duration, burst: u64) -> Result<TokenBucket, PolicyError> {
    check_refill(count)?;
    check_burst(burst)?;
    let micros = span::check("period", period)?;
    let unit = |period: u64| period / gcd(count, period);
    let fits = |period| burst.checked_mul(unit(period)).is_some_and(|product| product <= MAX_EXACT);
    let (tick, period) = finest_tick(micros, fits).ok_or_else(|| {
        PolicyError::new(format!(
            "burst {burst} at {count}/{} is above 2^52 parts of a token at every tick that divides \
             the period, up to 1s: {} at the coarsest",
            show_micros(micros),
            u128::from(burst) * u128::from(unit(micros / coarsest_tick(micros))),
        ))
    })?;
    let bucket = TokenBucket {
        capacity: burst,
        full: burst * unit(period),
        unit: Unit::new(unit(period)),
        refill: divisor(count / gcd(count, period)),
        tick: divisor(tick),
    };
    check_recovery(bucket.full.div_ceil(bucket.refill.get()).checked_mul(tick))?;
    Ok(bucket)
}

fn interval_bucket(spec: &spec::TokenBucket) -> Result<IntervalBucket, PolicyError> {
    let (refill, capacity) = (check_refill(spec.refill)?, check_burst(spec.burst)?);
    let period = span::check("period", spec.period)?;
    check_recovery(capacity.div_ceil(refill).checked_mul(period))?;
    Ok(IntervalBucket { capacity, refill: divisor(refill), period: divisor(period) })
}

/// What was found to be above 0, as a number that cannot be otherwise: nothing that divides by it can fail.
fn divisor(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

fn check_refill(count: u64) -> Result<u64, PolicyError> {
    if count == 0 {
        let error = PolicyError::new("the rate is 0; a bucket refills with at least 1 per period");
        return Err(error.about(Part::Rate));
    }
    check_exact("rate", count).map_err(|error| error.about(Part::Rate))
}

fn check_burst(burst: u64) -> Result<u64, PolicyError> {
    if burst == 0 {
        let error = PolicyError::new("the burst is 0; a bucket holds at least 1");
        return Err(error.about(Part::Burst));
    }
    check_exact("burst", burst).map_err(|error| error.about(Part::Burst))
}

fn check_recovery(micros: Option<u64>) -> Result<(), PolicyError> {
    match micros {
        Some(micros) if micros <= MAX_SPAN => Ok(()),
        _ => Err(PolicyError::new(
            "an empty bucket takes longer than 2^51 us (71 years) to fill; lower the burst or raise \
             the rate",
        )),
    }
}

/// The finest tick that divides `micros` and fits, and `micros` in it.
fn finest_tick(micros: u64, fits: impl Fn(u64) -> bool) -> Option<(u64, u64)> {
    TICKS
        .into_iter()
        .filter(|tick| micros.is_multiple_of(*tick))
        .map(|tick| (tick, micros / tick))
        .find(|&(_, ticks)| fits(ticks))
}

fn coarsest_tick(micros: u64) -> u64 {
    TICKS.into_iter().rfind(|tick| micros.is_multiple_of(*tick)).unwrap_or(1)
}

/// Euclid's algorithm; both numbers are above 0.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
