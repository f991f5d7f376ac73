-- Numbers that only the scripts know. The assembly replaces each name by its literal, because Lua
-- would load a local at each use. Numbers that the crate also knows (rules, operations, outcomes,
-- kinds, sizes of values) are in `src/values`.

-- The kind of a foreign value.
FOREIGN = 0

-- A value with a block has a kind that is greater by BLOCK_FLAG, and ends with the time until which
-- it blocks (BLOCK_SIZE bytes).
BLOCK_FLAG = 0x20
BLOCK_SIZE = 7

-- Bytes of a log, or of the last element of a list: see rules/sliding_log.lua. A sealed element has
-- CHUNK records, and CHUNK_SIZE bytes.
CHUNK = 14
CHUNK_SIZE = 204
LOG_END = 51

-- Bytes of an open hold on a state, in total, up to the end of its number, and up to the end of its
-- key; and bytes of the foot of a state with holds: see lib/state_holds.lua.
STATE_HOLD = 48
HOLD_NUMBER = 4
HOLD_KEY = 20
HOLDS_FOOT = 77

-- Bytes of an epoch and of its number: see lib/epoch.lua. A hold without an epoch has NO_EPOCH
-- instead of the number.
EPOCH_SIZE = 38
EPOCH_NUMBER = 16
NO_EPOCH = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- The maximum number of records of a log with holds.
MAX_RECORDS_WITH_HOLDS = 1024

-- Bytes of the record under an id: up to the end of the fingerprint, up to the end of the part from
-- the call, and up to the end of the time at which it was written. HOLD_HEAD: bytes of the record
-- of a hold up to the minimum.
FINGERPRINT = 21
ID_REQUEST = 29
ID_HEAD = 36
HOLD_HEAD = 45

-- The held cost of a charge that settles nothing: 2^53, which no cost can be.
NOT_COUNTED = 0x20000000000000

-- An undo finds its record among the newest MAX_UNDO records, which are in at most MAX_UNDO_SEALED
-- sealed elements.
MAX_UNDO = 128
MAX_UNDO_SEALED = 10

-- The minimum number of expired records in a string before it is written without them.
MIN_EXPIRED = 16

-- A number is at most 2^52, so that the sum of two numbers is at most 2^53. Running totals wrap
-- around at 2^53.
MAX_EXACT = 0x10000000000000
MODULUS = 0x20000000000000

-- The debt of a charge beyond the limit is repaid within this time: 2^51 microseconds.
MAX_SPAN = 0x8000000000000

-- The minimum time to live in milliseconds, if a test sets the time.
MIN_TTL_IN_TESTS = 3600000

-- Bytes of a request for one charge that is an acquire without a wait and without a penalty.
USUAL_SIZE = 35

-- Bytes of a request for several charges: the head of a call, and a charge.
CALL_HEAD = 9
CHARGE_SIZE = 46
