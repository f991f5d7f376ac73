--- The rules as functions, one per algorithm. Every file in rules/ has these inputs and outputs:
---
--- Inputs:
---   value, kind     the value of the key and the kind of the value (see lib/value.lua)
---   cost            the cost of the charge
---   op              ACQUIRE, PEEK, REFUND or UNDO, or GRANT for a quota
---   max_wait        the maximum wait of an acquire; for an undo, the original cost of the charge
---   taken_at        for an undo, the time of the charge that the undo undoes; for a grant, its end
---   p1 to p4        the numbers of the policy
---   key, is_list    only for a log and a fair pool: the key, and whether the value is a list
---   max_records     only for a charge beyond the limit to a log: the maximum number of records
---
--- Outputs:
---   admits          whether the cost is admitted; `nil` if the value is foreign
---   a, b, c         three numbers of the state, which depend on the rule
---   d               the time at which the state ends, or 0 if it follows from a, b and c
---   after           the value to write, `nil` for no write, or `false` if the state becomes empty
---   expires_at      the time until which the value must live
---   plan            only for a log that is a list: the elements to remove and to add; for a fair
---                   pool: the members to write
---   keeps_ttl       whether the key already lives until expires_at
---
--- After an undo in a log, c is greater than 0 if the record of the charge is not among the newest
--- MAX_UNDO records.
---
--- An acquire charges the cost if it is admitted. A refund subtracts the cost from the state as it
--- is now. An undo subtracts the cost from the part of the state that was charged at `taken_at`.

-- Writes a state that is a list or a hash.
local function write_parts(key, value, is_list, after, expires_at, plan)
  if plan.member_id then
    local member_id, own, members, keeps_ttl =
      plan.member_id, plan.own, plan.members, plan.keeps_ttl
    --- @inline lib/write.pool
    return
  end
  local from, to, chunk, chunks = plan.from, plan.to, plan.chunk, plan.chunks
  local keeps_ttl, blocked_until = false, 0
  --- @inline lib/write.list
end

-- Three tables, indexed by the number of the rule (the algorithm): the kind and the size of the
-- stored value, and the function that executes the rule. The size is 0 if it varies. The kind of a
-- fixed window depends on the start of the windows, so the kind is the fourth number of the policy.
local KINDS = { false, LOG, COUNTER, BUCKET, INTERVAL, SLOTS, CALENDAR, POOL }
local SIZES = {
  WINDOW_SIZE, 0, COUNTER_SIZE, BUCKET_SIZE, INTERVAL_SIZE, SLOTS_SIZE, CALENDAR_SIZE, 0,
}
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
  --- @when lapse
  function(value, kind, cost, op, max_wait, taken_at, p1)
    local admits, a, b, c, after, expires_at
    --- @inline rules/concurrent
    return admits, a, b, c, 0, after, expires_at
  end,
  --- @end
}
RULES[FAIR_POOL] = function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key)
  local admits, a, b, c, d, after, expires_at, keeps_ttl
  --- @inline rules/fair_pool
  local plan = after
    and { member_id = member_id, own = own, members = members, keeps_ttl = keeps_ttl }
  return admits, a, b, c, d, after, expires_at, plan
end
RULES[QUOTA] = function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4)
  local admits, a, b, c, d, after, expires_at, keeps_ttl
  --- @inline rules/quota
  return admits, a, b, c, d, after, expires_at, nil, keeps_ttl
end
