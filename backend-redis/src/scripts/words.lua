-- Words for numbers, which are put in their place when a script is put together: a local would have to
-- be loaded at each call, and again by each function that knows it.

-- The place of the log among the rules.
SLIDING_LOG = 2

-- What to do.
ACQUIRE = 1
PEEK = 2
REFUND = 3
RESET = 4
BLOCK = 5
UNDO = 6

-- What comes of it.
ALLOWED = 0
DENIED = 1
BLOCKED = 2

-- What lies under a key: nothing (or a mere block), one of ours, or what is not ours.
NONE = 0x90
FIXED_ALIGNED = 0x91
FIXED_PHASED = 0x92
FIXED_ANCHORED = 0x93
LOG = 0x94
COUNTER = 0x95
BUCKET = 0x96
INTERVAL = 0x97
FOREIGN = 0

-- Added to the kind of a value that ends in the time until which it blocks.
BLOCK_FLAG = 0x20
BLOCK_SIZE = 7

-- Bytes of a value that is no log.
WINDOW_SIZE = 15
COUNTER_SIZE = 22
BUCKET_SIZE = 36
INTERVAL_SIZE = 29

-- Bytes of a log, or of an element of a long one: what stands before the records, a record, how many
-- records an element has, its size, what stands behind the newest record, and that with this record.
LOG_HEAD = 8
RECORD = 14
CHUNK = 14
CHUNK_SIZE = 204
LOG_FOOT = 37
LOG_END = 51

-- The newest records of a log, among which one is looked for that is to be undone; and how many elements
-- before the last they may be in.
MAX_UNDO = 128
MAX_UNDO_SEALED = 10

-- Records that have expired in a log that is a string before it is worth writing anew.
FEW = 16

-- No number is larger than 2^52 but sums of two; running totals wrap around at 2^53.
MAX_EXACT = 0x10000000000000
MODULUS = 0x20000000000000

-- Milliseconds that a key lives at least where a test gives the time.
LIFE_IN_TESTS = 3600000

-- Bytes of a request for one charge, unless it says more than usual.
USUAL_SIZE = 35

-- Bytes of a request for many: what stands before the charges of a call, and a charge.
CALL_HEAD = 9
CHARGE_SIZE = 46

-- The first byte of an answer that is not a value.
VERDICTS = 0
