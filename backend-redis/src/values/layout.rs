//! Numbers that the scripts and this crate share: rules, operations, flags, outcomes, kinds and sizes of values.
//!
//! This is the one place that they stand in: the constants below, and the words in the scripts that have the
//! same names, which are replaced by these literals when a script is assembled. Numbers that only the
//! scripts know are in `scripts/constants.lua`.

use std::borrow::Cow;

/// Defines constants, and a table of their names and literals for the scripts.
macro_rules! shared {
    ($($(#[$about:meta])* $name:ident = $value:literal;)+) => {
        $($(#[$about])* pub(crate) const $name: u8 = $value;)+

        const SHARED: &[(&str, &str)] = &[$((stringify!($name), stringify!($value))),+];
    };
}

shared! {
    // Rules.
    FIXED_WINDOW = 1;
    SLIDING_LOG = 2;
    SLIDING_COUNTER = 3;
    TOKEN_BUCKET = 4;
    INTERVAL_BUCKET = 5;

    // Operations. An acquire with a maximum wait is a reservation.
    ACQUIRE = 1;
    PEEK = 2;
    REFUND = 3;
    RESET = 4;
    BLOCK = 5;
    UNDO = 6;
    BLOCK_AT_LEAST = 7;
    CHARGE = 8;
    ACQUIRE_UP_TO = 9;
    SETTLE = 10;
    SETTLE_SO_FAR = 11;
    EXTEND = 12;

    // Flags of a charge.
    SHADOW = 1;
    CHECK_ONLY = 2;

    // Outcomes.
    ALLOWED = 0;
    DENIED = 1;
    BLOCKED = 2;

    // Kinds: the first byte of a value. `NONE` is the lowest one: a value that has only a block.
    NONE = 0x90;
    FIXED_ALIGNED = 0x91;
    FIXED_PHASED = 0x92;
    FIXED_ANCHORED = 0x93;
    LOG = 0x94;
    COUNTER = 0x95;
    BUCKET = 0x96;
    INTERVAL = 0x97;

    ID = 0x98;
    HOLD = 0x99;
    #[expect(dead_code, reason = "the last byte of a state with holds, which no reply has")]
    HOLDS = 0x9a;
    #[expect(dead_code, reason = "the first byte of an epoch, which no reply has")]
    EPOCH = 0x9b;

    // First byte of a reply that is not just a value.
    VERDICTS = 0;
    ID_REUSED = 1;
    ID_FOREIGN = 2;
    HOLD_UNKNOWN = 3;
    HOLD_SETTLED = 4;
    HOLD_LAPSED = 5;
    TOO_MANY_HOLDS = 6;

    // First byte of the reply to a call, if holds on the states are behind it: no place of a charge, and no kind.
    WITH_HOLDS = 0x8f;

    // First byte of the reply of the usual batch to a key or a charge, beside `DENIED` and the kinds.
    UNUSUAL = 3;
    EMPTY = 4;

    // Bytes of a log before its records, of a record, and behind them: see the diagram in `scripts/sliding_log.lua`.
    LOG_HEAD = 8;
    RECORD = 14;
    LOG_FOOT = 37;

    // The maximum number of holds in a reply to a charge:
    // `tidegate_core::no_semver::MAX_COUNTED_LAPSES`.
    MAX_COUNTED_LAPSES = 32;
}

/// Literal of a shared number, by its name.
pub(crate) fn literal(name: &str) -> Option<Cow<'static, str>> {
    SHARED.iter().find(|(shared, _)| *shared == name).map(|(_, literal)| Cow::Borrowed(*literal))
}
