-- The rules, one function per algorithm.
--
-- In:
--   value, kind     of the key: see read.lua
--   cost
--   op              ACQUIRE, PEEK, REFUND or UNDO
--   max_wait        of an acquire; of an undo, the whole cost of the take
--   taken_at        of an undo: the time of the take
--   p1 to p4        the numbers of the policy
--   key, is_list    of a log
--   max_records     of a charge beyond the limit to a log
--
-- Out:
--   whether the cost is admitted; `nil` if the value is not valid
--   three numbers of the state; after an undo in a log, the third is above 0 if it is out of reach
--   the time at which the state ends; 0 if the numbers tell
--   the value to write; `nil` for none, `false` if the state is gone
--   the time until which the value must live
--   how to write a list
--   whether the key lives long enough already
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
