--- Functions that compute the charged and the remaining amount of a state. Their inputs a, b and c
--- are the three numbers that the rule returns (see lib/rules.lua). The other inputs are the
--- numbers of the policy.

-- Returns the charged sum or the debt of a state, and the amount by which a cost of 1 increases it,
-- such as the `unit` of a token bucket.
local function held(rule, a, b, c, p2)
  if rule == SLIDING_LOG then return a, 1 end
  if rule == SLIDING_COUNTER then return b + c, 1 end
  return b, rule == TOKEN_BUCKET and p2 or 1
end

-- Returns the maximum cost that the policy admits now, like the functions `level` of the algorithms
-- in the core.
local function remaining(rule, a, b, c, p1, p2, p3)
  if rule == FAIR_POOL then return c end
  if rule == QUOTA then return math.max(math.min(p1 + c, MAX_EXACT) - b, 0) end
  local sum, unit = held(rule, a, b, c, p2)
  local free = p1 * unit - sum
  if rule == SLIDING_COUNTER then
    -- The number of ticks of the previous window that still count, computed as in
    -- rules/sliding_counter.lua.
    local remaining_ticks = a - now
    remaining_ticks = math.min((remaining_ticks + -remaining_ticks % p3) / p3, p2)
    free = b > 0 and math.max(p1 * p2 - b * remaining_ticks, 0) or p1 * p2
    free = (free - free % p2) / p2 - c
  end
  return math.max((free - free % unit) / unit, 0)
end

-- Returns the maximum cost that a charge beyond the limit can record now, like the functions
-- `chargeable` of the algorithms in the core.
local function room(rule, a, b, c, p2, p3, p4)
  local sum, unit = held(rule, a, b, c, p2)
  local max = MAX_EXACT
  if rule == SLIDING_COUNTER then
    sum = c
  elseif rule == TOKEN_BUCKET then -- max_debt
    max = math.min(max, (MAX_SPAN - MAX_SPAN % p4) / p4 * p3)
  elseif rule == INTERVAL_BUCKET then
    max = math.min(max, (MAX_SPAN - MAX_SPAN % p3) / p3 * p2)
  end
  max = math.max(max - sum, 0)
  return (max - max % unit) / unit
end

-- Returns the maximum number of records of a log. If a log has this number of records, a charge
-- beyond the limit moves the newest record instead of adding a record.
local function max_records(rule, p1, p2, p3)
  if rule == SLIDING_LOG and p3 > 0 then return math.min(p1, (p2 - p2 % p3) / p3 + 2) end
  return p1
end
