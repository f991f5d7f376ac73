-- The rules, one function per algorithm.
--
-- In: value and kind (of the key: see read.lua), cost, op (ACQUIRE, PEEK, REFUND or UNDO), max_wait (of an
-- acquire; of an undo, the cost of the take of which `cost` is to be given back), taken_at (of an undo: the time
-- of the take), the four numbers of the policy; for a log also key, is_list and max_records (of a charge beyond
-- the limit).
-- Out: whether the cost is admitted (`nil` if the value is not valid); three numbers of the state as it is
-- then, and the time at which that state ends (0: as the numbers say); the value to write (`nil`: none,
-- `false`: the state is gone); the time until which it must live; how to write a list; whether the key
-- lives long enough already. If an undo in a log does not reach its take, the third number is above 0.
local function write_list(key, value, is_list, after, expires_at, plan)
  local from, to, chunk, chunks = plan.from, plan.to, plan.chunk, plan.chunks
  local keeps_ttl, blocked_until = false, 0
  --> sliding_log/write_list.lua
end

local KINDS = { false, LOG, COUNTER, BUCKET, INTERVAL }
local SIZES = { WINDOW_SIZE, 0, COUNTER_SIZE, BUCKET_SIZE, INTERVAL_SIZE }
local RULES = {
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --> fixed_window.lua
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --> sliding_log.lua
    local plan = after and as_list and { from = from, to = to, chunk = chunk, chunks = chunks }
    return admits, a, b, c, d, after, expires_at, plan
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --> sliding_counter.lua
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --> token_bucket.lua
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --> interval_bucket.lua
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
}
