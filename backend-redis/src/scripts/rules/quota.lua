--- Quota: at most `limit` in each window of a calendar. A cost is admitted if and only if
--- count + cost <= limit. core/src/algorithm/quota.rs decides in the same way, and describes the
--- windows of callers that disagree. lib/rules.lua describes the inputs and outputs.
---
--- The caller computes the window that contains the time of the server, and lib/now.lua has checked
--- this. An undo does not depend on this window, because a lapsed hold is undone with the window of
--- an earlier call.
local limit, window_start, window_end, max_length = p1, p2, p3, p4
local start, earliest_end, ends, count, carry = 0, 0, 0, 0, 0
local is_valid = window_start < window_end and window_end - window_start <= max_length
a, c, d = 0, 0, 0
if kind == CALENDAR or kind == DRIFT then
  if kind == CALENDAR then
    start, ends, count = parse('<I7I7I7', value, 2)
    earliest_end = ends
  else
    start, earliest_end, ends, count, carry = parse('<I7I7I7I7I7', value, 2)
  end
  a, c, d = ends, carry, earliest_end
  -- check
  is_valid = is_valid and count > 0 and count <= MAX_EXACT and carry <= count
    and start <= earliest_end and earliest_end <= ends and (carry == 0 or earliest_end < ends)
    and ends < MAX_EXACT + max_length + MAX_DRIFT and ends - start <= max_length + MAX_DRIFT
  if op == UNDO then
    -- After the end of the window, an undo changes nothing.
    if now >= ends then taken_at = ends end
  elseif ends ~= window_end or earliest_end ~= window_end then
    -- Times of callers that belong to the same edge differ by less than this.
    local max_drift = math.min(MAX_DRIFT, (window_end - window_start) / 2)
    if ends - window_end < max_drift and window_end - earliest_end < max_drift then
      -- The window of the value is the window of the caller.
      earliest_end, ends = math.min(earliest_end, window_end), math.max(ends, window_end)
    elseif now >= ends then
      count = window_start - ends < max_drift and carry or 0
      start, earliest_end, ends, carry = window_start, window_end, window_end, 0
    end
  end
end

-- wait
admits = count + cost <= limit

local writes = op == ACQUIRE and admits
if writes then -- take
  if count == 0 then start, earliest_end, ends, carry = window_start, window_end, window_end, 0 end
  count = count + cost
  if now >= earliest_end then carry = carry + cost end
elseif op == REFUND -- refund
  or op == UNDO and start <= taken_at and taken_at < ends then -- undo
  count = math.max(count - cost, 0)
  carry = math.min(carry, count)
  writes = count > 0
  if not writes then after = false end
end
if writes then
  if earliest_end == ends then
    after = pack('<BI7I7I7', CALENDAR, start, ends, count)
  else
    after = pack('<BI7I7I7I7I7', DRIFT, start, earliest_end, ends, count, carry)
  end
  expires_at = ends + MAX_DRIFT + (carry > 0 and max_length + MAX_DRIFT or 0)
  keeps_ttl = ends == a and (carry > 0) == (c > 0)
  a, c, d = ends, carry, earliest_end
end
-- `b` is the count of the window at `now`. The value contains the other numbers.
b = count
if not is_valid then admits, after = nil, nil end
