-- Numbers that only the scripts use. The assembly replaces each name by its literal, because Lua
-- would load a local at each use. `src/values` has the numbers that the crate also uses: rules,
-- operations, outcomes, kinds and sizes of values.

FOREIGN = 0

-- BLOCK_FLAG is added to the kind of a value with a block. Such a value ends with the time until
-- which the block lasts, in BLOCK_SIZE bytes.
BLOCK_FLAG = 0x20
BLOCK_SIZE = 7

-- OFFENSES_FLAG is added to the kind of a value with offenses. Such a value ends with the block (0
-- for no block) and the offenses. The offenses have OFFENSES_SIZE bytes: the level, and the time at
-- which the offenses are forgotten.
OFFENSES_FLAG = 0x40
OFFENSES_SIZE = 8
MAX_LEVEL = 52

-- Sizes in a log (see rules/sliding_log.lua): the number of records of a sealed element of a list,
-- the bytes of a sealed element, and the bytes of the newest record and the foot together.
CHUNK = 14
CHUNK_SIZE = 204
LOG_END = 51

-- Sizes in bytes in a state with holds (see lib/state_holds.lua). An open hold has STATE_HOLD
-- bytes. Its number ends after HOLD_NUMBER bytes, and its key after HOLD_KEY bytes. The foot has
-- HOLDS_FOOT bytes and the layout FOOT_LAYOUT. SLOTS_LAYOUT is the layout of slots with their foot.
STATE_HOLD = 51
HOLD_NUMBER = 7
HOLD_KEY = 23
HOLDS_FOOT = 91
FOOT_LAYOUT = '<BI7I7I7I7I7I4I4I7I4I7I7I7I7I7B'
SLOTS_LAYOUT = '<BI7BI7I7I7I7I7I4I4I7I4I7I7I7I7I7B'

-- COUNTS_FAILURES is added to the rule in the foot, and IS_FAILURE to the maximum number of open
-- holds in a request, if the policy of a hold counts failures.
COUNTS_FAILURES = 0x80
IS_FAILURE = 0x80000000

-- The maximum time for which a place in the queue for slots is kept without another call, in
-- microseconds.
MAX_LIFE_OF_PLACE = 5000000

-- The maximum number of waiting calls that a script wakes.
MAX_WOKEN = 16

-- Sizes in bytes of an epoch and of the number of an epoch (see lib/epoch.lua). A hold without an
-- epoch has NO_EPOCH instead of the number.
EPOCH_SIZE = 38
EPOCH_NUMBER = 16
NO_EPOCH = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- The maximum number of records of a log with holds.
MAX_RECORDS_WITH_HOLDS = 1024

-- Places in the record under an id, in bytes from its start. The fingerprint ends at FINGERPRINT.
-- The part that the client sends ends at ID_REQUEST, and the time at which the record was written
-- ends at ID_HEAD. In the record of a hold, the minimum begins after HOLD_HEAD.
FINGERPRINT = 21
ID_REQUEST = 29
ID_HEAD = 36
HOLD_HEAD = 45

-- The held cost in the record of a hold for a charge that a shadow denied. A settlement changes
-- nothing for such a charge. The number is 2^53, which exceeds every cost.
NOT_COUNTED = 0x20000000000000

-- An undo searches for the record of its charge among the newest MAX_UNDO records. These records
-- are in at most MAX_UNDO_SEALED sealed elements and the last element.
MAX_UNDO = 128
MAX_UNDO_SEALED = 10

-- A script removes the expired records from a log that is a string only if the log has at least
-- this number of expired records.
MIN_EXPIRED = 16

-- A number is at most 2^52, so that the sum of two numbers is at most 2^53. Running totals wrap
-- around at 2^53.
MAX_EXACT = 0x10000000000000
MODULUS = 0x20000000000000

-- After a charge beyond the limit, a bucket has at most the debt that is repaid within this time,
-- 2^51 microseconds.
MAX_SPAN = 0x8000000000000

-- The minimum time to live of a key in milliseconds, if a test sets the time.
MIN_TTL_IN_TESTS = 3600000

-- The size in bytes of the request of single.lua for an acquire without a wait and a penalty (a
-- block after a denial). The request for any other call is longer.
USUAL_SIZE = 35

-- The size in bytes of two times between which no window of a quota begins or ends (see
-- lib/now.lua). The time that a test sets can follow.
EDGES_SIZE = 14

-- The ends of two windows of a quota that are the same differ by less than this time, 26 hours in
-- microseconds.
MAX_DRIFT = 93600000000

-- A quota whose unused part rolls over has p4 of at least this number (see rules/quota.lua). A
-- subject is remembered for REMEMBERED_WINDOWS windows of the maximum length. A state has at most
-- MAX_GRANTS open grants. Without its grants, a value with top-ups has TOPPED_UP_SIZE bytes.
ROLLOVER = 0x200000000
REMEMBERED_WINDOWS = 12
MAX_GRANTS = 16
TOPPED_UP_SIZE = 64
GRANT_SIZE = 14

-- The maximum limit of a fair pool, the amount by which a limit is raised, the maximum weight of a
-- member, and the maximum sum of all weights (see rules/fair_pool.lua). A policy has its weight
-- times POOL_WEIGHT in p2. A state has at least POOL_FULL fields if it has no room for a
-- further member. POOL_OTHERS is the id of the member of all further subjects.
MAX_POOL = 0x100000000
POOL_RAISE = 0xfffff00000000
MAX_WEIGHT = 1000
MAX_POOL_WEIGHTS = 1000000
POOL_WEIGHT = 0x40000000000
POOL_FULL = 1000
POOL_OTHERS = '\255\255\255\255\255\255\31\255\255\255\255\255\255\31'

-- Sizes in bytes in the request of batch.lua: the head of a call, a charge, and the last part of a
-- charge, which describes how blocks grow.
CALL_HEAD = 9
CHARGE_SIZE = 61
GROWTH_SIZE = 15
