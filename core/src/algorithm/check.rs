//! Checks on the numbers of a state that comes from elsewhere.

use crate::Timestamp;
use crate::time::MAX_EXACT;

/// The latest time at which a state is written.
pub(super) const LAST: u64 = Timestamp::MAX.as_micros();

/// The name of a number. A log builds it only for a number that is wrong.
pub(super) trait Name {
    fn name(self) -> String;
}

impl Name for &str {
    fn name(self) -> String {
        self.to_owned()
    }
}

impl<F: FnOnce() -> String> Name for F {
    fn name(self) -> String {
        self()
    }
}

pub(super) fn at_most(what: impl Name, value: u64, bound: u64) -> Result<(), String> {
    if value <= bound {
        return Ok(());
    }
    Err(format!("{} {value}, and at most {bound} is possible", what.name()))
}

/// A count or a debt. If it is 0, there is no state.
pub(super) fn amount(what: impl Name, value: u64) -> Result<(), String> {
    if (1..=MAX_EXACT).contains(&value) {
        return Ok(());
    }
    Err(format!("{} {value}, and 1 to {MAX_EXACT} is possible", what.name()))
}

pub(super) fn multiple(
    what: impl Name,
    value: u64,
    divisor: u64,
    divisor_name: &str,
) -> Result<(), String> {
    if value > 0 && value.is_multiple_of(divisor) {
        return Ok(());
    }
    Err(format!("{} {value}, which is not a multiple of {divisor} us, {divisor_name}", what.name()))
}
