//! Compiles an algorithm into exact integers, or into an error that names the bound.

use super::error::Part;
use super::spec::{Algorithm, FixedWindow, Refill, SlidingCounter, SlidingLog, TokenBucket};
use super::{PolicyError, check_exact, show_micros, span};
use crate::algorithm::fixed_window::FixedWindowRule;
use crate::algorithm::interval_bucket::IntervalBucketRule;
use crate::algorithm::rule::Rule;
use crate::algorithm::sliding_counter::SlidingCounterRule;
use crate::algorithm::sliding_log::{MAX_RECORDS, SlidingLogRule};
use crate::algorithm::token_bucket::TokenBucketRule;
use crate::algorithm::unit::Unit;
use crate::time::{MAX_EXACT, MAX_SPAN_MICROS};
use std::num::NonZeroU64;
use std::ops::Rem;

/// The ticks a policy may have, in microseconds, finest first.
const TICKS: [u64; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

impl Rule {
    pub(super) fn new(algorithm: &Algorithm) -> Result<Self, PolicyError> {
        match algorithm {
            Algorithm::FixedWindow(spec) => fixed_window(spec).map(Self::FixedWindow),
            Algorithm::SlidingLog(spec) => sliding_log(spec).map(Self::SlidingLog),
            Algorithm::SlidingCounter(spec) => sliding_counter(spec).map(Self::SlidingCounter),
            Algorithm::TokenBucket(spec) => match spec.mode {
                Refill::Continuous | Refill::Gcra => token_bucket(spec).map(Self::TokenBucket),
                Refill::ByInterval => interval_bucket(spec).map(Self::IntervalBucket),
            },
        }
    }
}

fn fixed_window(spec: &FixedWindow) -> Result<FixedWindowRule, PolicyError> {
    let limit = check_exact("limit", spec.limit)?;
    let window = span::check("window", spec.window)?;
    Ok(FixedWindowRule { limit, window: divisor(window), start: spec.start })
}

fn sliding_log(spec: &SlidingLog) -> Result<SlidingLogRule, PolicyError> {
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
    let rule = SlidingLogRule { limit, window, grain };
    let records = rule.max_records();
    if records > MAX_RECORDS {
        let finest = window.div_ceil(MAX_RECORDS - 2);
        return Err(PolicyError::new(format!(
            "a log with limit {limit} may need {records} records; at most {MAX_RECORDS} are kept: lower the \
             limit, or give a grain of {} or more",
            show_micros(finest),
        )));
    }
    Ok(rule)
}

fn sliding_counter(spec: &SlidingCounter) -> Result<SlidingCounterRule, PolicyError> {
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
    Ok(SlidingCounterRule { limit, window: divisor(window), tick: divisor(tick) })
}

fn token_bucket(spec: &TokenBucket) -> Result<TokenBucketRule, PolicyError> {
    let (count, burst) = (check_refill(spec.refill)?, check_burst(spec.burst)?);
    let micros = span::check("period", spec.period)?;
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
    let bucket = TokenBucketRule {
        capacity: burst,
        full: burst * unit(period),
        unit: Unit::new(unit(period)),
        refill: divisor(count / gcd(count, period)),
        tick: divisor(tick),
    };
    check_recovery(bucket.full.div_ceil(bucket.refill.get()).checked_mul(tick))?;
    Ok(bucket)
}

fn interval_bucket(spec: &TokenBucket) -> Result<IntervalBucketRule, PolicyError> {
    let (refill, capacity) = (check_refill(spec.refill)?, check_burst(spec.burst)?);
    let period = span::check("period", spec.period)?;
    check_recovery(capacity.div_ceil(refill).checked_mul(period))?;
    Ok(IntervalBucketRule { capacity, refill: divisor(refill), period: divisor(period) })
}

/// A number that was checked to be above 0, as a divisor that cannot be 0.
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
        Some(micros) if micros <= MAX_SPAN_MICROS => Ok(()),
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

/// Returns the greatest common divisor by Euclid's algorithm. `a` is above 0.
pub(super) fn gcd<T: Copy + Default + PartialEq + Rem<Output = T>>(a: T, b: T) -> T {
    if b == T::default() { a } else { gcd(b, a % b) }
}
