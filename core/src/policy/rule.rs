//! Converts the numbers of an algorithm into exact integers.

use std::num::NonZeroU64;
use std::ops::Rem;

use super::error::{Part, PolicyError};
use super::quota;
use super::span::{self, Micros};
use super::spec::{
    Algorithm, Concurrent, FairPool, FixedWindow, Refill, SlidingCounter, SlidingLog, TokenBucket,
};
use crate::algorithm::concurrent::ConcurrentRule;
use crate::algorithm::fair_pool::{FairPoolRule, MemberId};
use crate::algorithm::fixed_window::FixedWindowRule;
use crate::algorithm::interval_bucket::IntervalBucketRule;
use crate::algorithm::rule::Rule;
use crate::algorithm::sliding_counter::SlidingCounterRule;
use crate::algorithm::sliding_log::{MAX_RECORDS, SlidingLogRule};
use crate::algorithm::token_bucket::TokenBucketRule;
use crate::algorithm::unit::Unit;
use crate::time::{MAX_EXACT, MAX_SPAN_MICROS};

/// The possible ticks of a policy in microseconds, the finest tick first.
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
            Algorithm::Concurrent(spec) => concurrent(spec).map(Self::Concurrent),
            Algorithm::Quota(spec) => quota::rule(spec).map(Self::Quota),
            Algorithm::FairPool(spec) => fair_pool(spec).map(Self::FairPool),
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
            Micros(grain),
            Micros(window),
        ))
        .about(Part::Grain));
    }
    let rule = SlidingLogRule { limit, window, grain };
    let records = rule.max_records();
    if records > MAX_RECORDS {
        let finest = window.div_ceil(MAX_RECORDS - 2);
        return Err(PolicyError::new(format!(
            "a log with limit {limit} may need {records} records; it must need at most {MAX_RECORDS}: lower the \
             limit, or add a grain of {} or more",
            Micros(finest),
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
            Micros(micros),
            u128::from(limit) * u128::from(micros / coarsest_tick(micros)),
        ))
    })?;
    Ok(SlidingCounterRule { limit, window: divisor(window), tick: divisor(tick) })
}

fn token_bucket(spec: &TokenBucket) -> Result<TokenBucketRule, PolicyError> {
    let (count, burst) = check_bucket(spec)?;
    let micros = span::check("period", spec.period)?;
    let unit = |period: u64| period / gcd(count, period);
    let fits = |period| burst.checked_mul(unit(period)).is_some_and(|product| product <= MAX_EXACT);
    let (tick, period) = finest_tick(micros, fits).ok_or_else(|| {
        PolicyError::new(format!(
            "burst {burst} at {count}/{} is above 2^52 parts of a token at every tick that divides \
             the period, up to 1s: {} at the coarsest",
            Micros(micros),
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
    let (refill, capacity) = check_bucket(spec)?;
    let period = span::check("period", spec.period)?;
    check_recovery(capacity.div_ceil(refill).checked_mul(period))?;
    Ok(IntervalBucketRule { capacity, refill: divisor(refill), period: divisor(period) })
}

fn concurrent(spec: &Concurrent) -> Result<ConcurrentRule, PolicyError> {
    let (limit, max) = (spec.limit, Concurrent::MAX_SLOTS);
    if limit > max {
        let message = format!("the number of slots is {limit}; it must be at most {max}");
        return Err(PolicyError::new(message).about(Part::Slots));
    }
    let lease = span::check("lease", spec.lease).map_err(|error| error.about(Part::Lease))?;
    Ok(ConcurrentRule { limit, lease })
}

fn fair_pool(spec: &FairPool) -> Result<FairPoolRule, PolicyError> {
    let (limit, weight) = (spec.limit, spec.weight);
    if limit > FairPool::MAX_LIMIT {
        let message = format!(
            "the limit of a fair pool is {limit}; it must be at most 2^32 = {}",
            FairPool::MAX_LIMIT
        );
        return Err(PolicyError::new(message).about(Part::Rate));
    }
    if !(1..=FairPool::MAX_WEIGHT).contains(&weight) {
        let message = format!("the weight is {weight}; it must be 1 to {}", FairPool::MAX_WEIGHT);
        return Err(PolicyError::new(message).about(Part::Weight));
    }
    let window = span::check("window", spec.window)?;
    if window > MAX_POOL_WINDOW {
        let message = format!(
            "the window of a fair pool is {}; it must be at most 2^41 us (25 days)",
            Micros(window)
        );
        return Err(PolicyError::new(message).about(Part::Rate));
    }
    let member = MemberId::from_subject(b"");
    Ok(FairPoolRule { limit, pool: limit, window: divisor(window), weight, member })
}

/// The maximum window of a fair pool in microseconds. The scripts for Redis get the window and the
/// weight in one number.
const MAX_POOL_WINDOW: u64 = 1 << 41;

/// Converts a number into a divisor. The number was already checked to be above 0.
fn divisor(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

pub(super) fn check_exact(name: &str, value: u64) -> Result<u64, PolicyError> {
    if value <= MAX_EXACT {
        return Ok(value);
    }
    Err(PolicyError::new(format!("the {name} is {value}; it must be at most 2^52 = {MAX_EXACT}")))
}

fn check_positive(name: &str, value: u64, part: Part) -> Result<u64, PolicyError> {
    let checked = match value {
        0 => Err(PolicyError::new(format!("the {name} is 0; it must be at least 1"))),
        _ => check_exact(name, value),
    };
    checked.map_err(|error| error.about(part))
}

/// Checks the numbers of a bucket, and returns its refill and its burst.
fn check_bucket(spec: &TokenBucket) -> Result<(u64, u64), PolicyError> {
    let refill = check_positive("rate", spec.refill, Part::Rate)?;
    Ok((refill, check_positive("burst", spec.burst, Part::Burst)?))
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

/// Returns the finest tick that divides `micros`, and the number of these ticks in `micros`. `fits`
/// must return `true` for this number.
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

pub(super) fn gcd<T: Copy + Default + PartialEq + Rem<Output = T>>(a: T, b: T) -> T {
    if b == T::default() { a } else { gcd(b, a % b) }
}
