//! Numbers that the scripts and this crate share: rules, operations, flags, outcomes, kinds of
//! values, and parts of replies.
//!
//! A constant in this module replaces its name in every script when the script is assembled.
//! `scripts/constants.lua` has the numbers that only the scripts use.

/// Defines constants, and a table of their names and literals for the assembly of scripts.
macro_rules! shared {
    ($($(#[$about:meta])* $name:ident = $value:literal;)+) => {
        $($(#[$about])* pub(crate) const $name: u8 = $value;)+

        const SHARED: &[(&str, &str)] = &[$((stringify!($name), stringify!($value))),+];
    };
}

shared! {
    FIXED_WINDOW = 1;
    SLIDING_LOG = 2;
    SLIDING_COUNTER = 3;
    TOKEN_BUCKET = 4;
    INTERVAL_BUCKET = 5;
    CONCURRENT = 6;
    QUOTA = 7;
    FAIR_POOL = 8;

    // The numbers of the operations. An acquire with a maximum wait is a reservation.
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
    ACQUIRE_IN_TURN = 13;
    LEAVE = 14;
    GRANT = 15;

    // The flags of a charge.
    SHADOW = 1;
    CHECK_ONLY = 2;
    // In the flags of a charge of a list of alternatives, the number of the list is multiplied by
    // this number.
    LIST_UNIT = 4;

    // This number is added to the factor of a block if a refusal during the block restarts it.
    RESTARTS = 128;

    ALLOWED = 0;
    DENIED = 1;
    BLOCKED = 2;

    // In the reply to a charge, this number is added to the outcome for each level of the subject.
    LEVEL_UNIT = 4;

    // The first byte of a value is its kind. `NONE` is the kind of a value that has only a block.
    // The replies of scripts contain no value of a fair pool, so only its kind is below `NONE`.
    #[expect(dead_code, reason = "no reply contains the value of a fair pool")]
    POOL = 0x8e;
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
    #[expect(dead_code, reason = "no reply contains the last byte of a state with holds")]
    HOLDS = 0x9a;
    #[expect(dead_code, reason = "no reply contains the first byte of an epoch")]
    EPOCH = 0x9b;

    SLOTS = 0x9c;
    CALENDAR = 0x9d;
    DRIFT = 0x9e;
    TOPPED_UP = 0x9f;

    // The possible first bytes of a script's reply, if the reply is not only a value.
    VERDICTS = 0;
    ID_REUSED = 1;
    ID_FOREIGN = 2;
    HOLD_UNKNOWN = 3;
    HOLD_SETTLED = 4;
    HOLD_LAPSED = 5;
    TOO_MANY_HOLDS = 6;
    HOLD_REPEATED = 7;
    OTHER_WINDOW = 8;
    TOO_MANY_GRANTS = 9;

    // The reply to a call begins with `WITH_HOLDS` if it contains the holds on the states. No place
    // of a charge and no kind has this number.
    WITH_HOLDS = 0x8f;

    // The reply to a charge begins with `WITH_VALUE` and the value of the key if the numbers of the
    // rule do not describe the whole value. No outcome has this number.
    WITH_VALUE = 0xff;

    // Possible first bytes of the reply to a key or a charge of a usual batch. The other possible
    // first bytes are `DENIED` and the kinds.
    UNUSUAL = 3;
    EMPTY = 4;

    // The sizes in bytes of the head of a log, of a record, and of the foot (the fixed-size end of
    // the log). A diagram in `scripts/rules/sliding_log.lua` shows these parts.
    LOG_HEAD = 8;
    RECORD = 14;
    LOG_FOOT = 37;

    // The sizes in bytes of the head of a fair pool, and of the numbers of a member.
    #[expect(dead_code, reason = "no reply contains the value of a fair pool")]
    POOL_HEAD = 36;
    #[expect(dead_code, reason = "no reply contains the value of a fair pool")]
    POOL_MEMBER = 23;

    // The maximum number of holds in a reply to a charge, which equals
    // `tidegate_core::no_semver::MAX_COUNTED_LAPSES`.
    #[allow(dead_code, reason = "Rust 1.88 does not notice the use in `protocol::open_holds`")]
    MAX_COUNTED_LAPSES = 32;
}

pub(super) fn literal(name: &str) -> Option<&'static str> {
    SHARED.iter().find(|(shared, _)| *shared == name).map(|(_, literal)| *literal)
}
