-- Constants of the scripts. They are replaced by their literals when a script is assembled, as a local of
-- Lua would be loaded at each call, and again by each function that uses it. Numbers that this crate knows
-- too (rules, operations, outcomes, kinds) are in `wire/layout.rs`.

-- Kind of a value that is not ours.
FOREIGN = 0

-- Added to the kind of a value that ends with the time until which it blocks; bytes of that time.
BLOCK_FLAG = 0x20
BLOCK_SIZE = 7

-- Bytes of a value that is not a log.
WINDOW_SIZE = 15
COUNTER_SIZE = 22
BUCKET_SIZE = 36
INTERVAL_SIZE = 29

-- Bytes of a log, or of the last element of a list: see the diagram in sliding_log.lua. A sealed element
-- has CHUNK records, and CHUNK_SIZE bytes.
CHUNK = 14
CHUNK_SIZE = 204
LOG_END = 51

-- Bytes of an open hold on a state, up to the end of its number and of its key; and of the foot of
-- a state with holds. See the diagram in state_holds.lua.
STATE_HOLD = 48
HOLD_NUMBER = 4
HOLD_KEY = 20
HOLDS_FOOT = 77

-- Bytes of an epoch, and of its number; in place of the number, of a hold without an epoch.
EPOCH_SIZE = 38
EPOCH_NUMBER = 16
NO_EPOCH = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- The maximum number of records of a log with holds.
MAX_RECORDS_WITH_HOLDS = 1024

-- Bytes of the value of an id: up to the end of the fingerprint, of what comes from the call, and of the time at
-- which it was written. Of a hold, up to the minimum.
FINGERPRINT = 21
ID_REQUEST = 29
ID_HEAD = 36
HOLD_HEAD = 45

-- In place of what is held, of a charge with which nothing is settled: 2^53, which no cost is.
NOT_COUNTED = 0x20000000000000

-- An undo finds its record among so many of the newest; and the number of sealed elements that these may
-- be in.
MAX_UNDO = 128
MAX_UNDO_SEALED = 10

-- Minimum number of expired records in a string before it is written without them.
MIN_EXPIRED = 16

-- Numbers are at most 2^52, and sums of two at most 2^53, where running totals wrap around.
MAX_EXACT = 0x10000000000000
MODULUS = 0x20000000000000

-- The debt of a charge beyond the limit is repaid within this time: 2^51 microseconds.
MAX_SPAN = 0x8000000000000

-- Minimum time to live in milliseconds, if a test sets the time.
MIN_TTL_IN_TESTS = 3600000

-- Bytes of a request for one charge that is an acquire without a wait and a penalty.
USUAL_SIZE = 35

-- Bytes of a request for several charges: the head of a call, and a charge.
CALL_HEAD = 9
CHARGE_SIZE = 46
