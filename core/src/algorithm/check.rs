//! Checks the numbers in a state that comes from outside of the process.

use std::fmt::Display;

use crate::time::{MAX_EXACT, Timestamp};

pub(super) const LAST: u64 = Timestamp::MAX.as_micros();

pub(super) fn at_most(name: impl Display, value: u64, bound: u64) -> Result<(), String> {
    if value <= bound {
        return Ok(());
    }
    Err(format!("{name} {value}; it must be at most {bound}"))
}

/// Checks a count or a debt. It must be at least 1, because a state without usage is never stored.
pub(super) fn amount(name: impl Display, value: u64) -> Result<(), String> {
    if (1..=MAX_EXACT).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} {value}; it must be 1 to {MAX_EXACT}"))
}

pub(super) fn multiple(
    name: impl Display,
    value: u64,
    divisor: u64,
    divisor_name: &str,
) -> Result<(), String> {
    if value > 0 && value.is_multiple_of(divisor) {
        return Ok(());
    }
    Err(format!("{name} {value}; it must be a multiple of {divisor} us, {divisor_name}"))
}
