-- Words for numbers, which are put in their place when a script is put together: a local would have to
-- be loaded at each call, and again by each function that knows it.

-- What to do.
ACQUIRE = 1
PEEK = 2
REFUND = 3
RESET = 4
BLOCK = 5

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

-- Bytes of a log: the records of a chunk, what stands before them there and in the value, a record.
CHUNK = 128
CHUNK_HEAD = 7
VALUE_HEAD = 31
RECORD = 14

-- No number is larger than 2^52 but sums of two; running totals wrap around at 2^53.
MAX_EXACT = 0x10000000000000
MODULUS = 0x20000000000000

-- Milliseconds that a key lives at least where a test gives the time.
LIFE_IN_TESTS = 3600000

-- Bytes of a request: what stands before the charges of a call, and a charge.
CALL_HEAD = 9
CHARGE_SIZE = 46
