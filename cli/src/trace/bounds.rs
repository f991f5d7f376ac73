//! What a record can hold.

/// The largest time a record can have, in microseconds since 1970: in the year 2112.
pub const TIME_MAX: u64 = (1 << 52) - 1;

/// The largest cost a record can have.
pub const COST_MAX: u64 = 1 << 52;

/// The largest late cost a record can have: a record has 32 bits for it.
pub const LATE_COST_MAX: u32 = u32::MAX;
