-- All rules. A rule is asked about what lies under a key, a cost, and what to do (acquire, peek,
-- refund; undo, which brings the time of the take as `max_wait`), with its four numbers. It says whether it admits (`nil`: what lies there is broken), three
-- numbers of the state as it is then and when that ends (0: as these numbers say), what is to be
-- written (`nil`: nothing; `false`: the state is
-- gone), until when that is to live, what has to be done to a list, and whether a key lives long
-- enough already.
local function write_list(key, value, is_list, after, lives_until, plan)
  local from, to, chunk, chunks = plan.from, plan.to, plan.chunk, plan.chunks
  local kept, blocked_until = false, 0
  --> write_list.lua
end

local KINDS = { false, LOG, COUNTER, BUCKET, INTERVAL }
local SIZES = { WINDOW_SIZE, 0, COUNTER_SIZE, BUCKET_SIZE, INTERVAL_SIZE }
local RULES = {
  function(value, kind, cost, does, max_wait, p1, p2, p3, p4)
    local admits, a, b, c, after, lives_until, kept
    local d = 0
    --> fixed_window.lua
    return admits, a, b, c, d, after, lives_until, nil, kept
  end,
  function(value, kind, cost, does, max_wait, p1, p2, p3, p4, key, is_list)
    local admits, a, b, c, after, lives_until, kept
    local d = 0
    --> sliding_log.lua
    local plan = after and as_list and { from = from, to = to, chunk = chunk, chunks = chunks }
    return admits, a, b, c, d, after, lives_until, plan
  end,
  function(value, kind, cost, does, max_wait, p1, p2, p3, p4)
    local admits, a, b, c, after, lives_until, kept
    local d = 0
    --> sliding_counter.lua
    return admits, a, b, c, d, after, lives_until, nil, kept
  end,
  function(value, kind, cost, does, max_wait, p1, p2, p3, p4)
    local admits, a, b, c, after, lives_until, kept
    local d = 0
    --> token_bucket.lua
    return admits, a, b, c, d, after, lives_until, nil, kept
  end,
  function(value, kind, cost, does, max_wait, p1, p2, p3, p4)
    local admits, a, b, c, after, lives_until, kept
    local d = 0
    --> interval_bucket.lua
    return admits, a, b, c, d, after, lives_until, nil, kept
  end,
}
