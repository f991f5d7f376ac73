//! The bounds of a record.

/// The maximum time of a record, in microseconds since 1970. It is in the year 2112.
pub const TIME_MAX: u64 = (1 << 52) - 1;

/// The maximum cost of a record.
pub const COST_MAX: u64 = 1 << 52;

/// The maximum late cost of a record. A record stores it in 32 bits.
pub const LATE_COST_MAX: u32 = u32::MAX;
