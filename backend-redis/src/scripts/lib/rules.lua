--- The rules as functions, one per algorithm. This comment is the contract of every file in rules/.
---
--- Inputs:
---   value, kind     of the key (see lib/value.lua)
---   cost
---   op              ACQUIRE, PEEK, REFUND or UNDO
---   max_wait        of an acquire; for an undo, the original cost of the charge
---   taken_at        for an undo, the time of the charge
---   p1 to p4        the numbers of the policy
---   key, is_list    only for a log
---   max_records     only for a charge beyond the limit to a log
---
--- Outputs:
---   admits          whether the cost is admitted; `nil` if the value is foreign
---   a, b, c         three numbers of the state; after an undo in a log, c is greater than 0 if the
---                   record of the charge is out of reach
---   d               the time at which the state ends; 0 if it follows from a, b and c
---   after           the value to write; `nil` for none, `false` if the state is gone
---   expires_at      the time until which the value must live
---   plan            only for a log: how to write the list
---   keeps_ttl       whether the key already lives long enough
---
--- An acquire charges the cost if it is admitted. A refund subtracts the cost from the state as it
--- is now. An undo subtracts the cost from the part of the state that was charged at `taken_at`.

local function write_list(key, value, is_list, after, expires_at, plan)
  local from, to, chunk, chunks = plan.from, plan.to, plan.chunk, plan.chunks
  local keeps_ttl, blocked_until = false, 0
  --- @inline lib/write.list
end

-- Kinds, sizes and functions, by the code of the rule. The kind of a fixed window depends on the
-- start of its windows, and is the fourth number of its policy.
local KINDS = { false, LOG, COUNTER, BUCKET, INTERVAL }
local SIZES = { WINDOW_SIZE, 0, COUNTER_SIZE, BUCKET_SIZE, INTERVAL_SIZE }
local RULES = {
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --- @inline rules/fixed_window
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --- @inline rules/sliding_log
    local plan = after and as_list and { from = from, to = to, chunk = chunk, chunks = chunks }
    return admits, a, b, c, d, after, expires_at, plan
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --- @inline rules/sliding_counter
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --- @inline rules/token_bucket
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
  function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
    local admits, a, b, c, after, expires_at, keeps_ttl
    local d = 0
    --- @inline rules/interval_bucket
    return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
  end,
}
