--- Quota: at most `limit` in each window of a calendar, plus the grants and the rolled-over quota
--- of the subject. A cost is admitted if and only if count + cost <= limit + extra.
--- core/src/algorithm/quota/mod.rs decides in the same way. It describes the grants, and the
--- windows of callers that disagree. lib/rules.lua describes the inputs and outputs.
---
--- The caller computes the window that contains the time of the server, and lib/now.lua has checked
--- this. An undo does not depend on this window, because a lapsed hold is undone with the window of
--- an earlier call.
---
--- p4 is the maximum length of a window in seconds. If unused quota rolls over, ROLLOVER times the
--- fraction is added: the numerator plus 1,024 times the denominator. For a charge beyond the
--- limit, p1 is -1 minus the limit. For a subject that is counted beyond the limit, p1 is the limit
--- plus MAX_EXACT + 1. For a grant, `taken_at` is the end of the grant.
---
--- `grants` has the end and the amount of each grant. It is `nil` if the subject has no grants and
--- no rolled-over quota, and is not remembered.
local limit, is_unlimited, window_start, window_end = p1, p1 < 0 or p1 > MAX_EXACT, p2, p3
if p1 < 0 then limit = -1 - p1 end
if limit > MAX_EXACT then limit = limit - MAX_EXACT - 1 end
local max_length = p4 % ROLLOVER * 1000000
local start, earliest_end, ends, count, carry, extra = 0, 0, 0, 0, 0, 0
local grants, window_limit, rolled_over, remembered_until
local is_valid = window_start < window_end and window_end - window_start <= max_length
if kind == CALENDAR or kind == DRIFT or kind == TOPPED_UP then
  if kind == CALENDAR then
    start, ends, count = parse('<I7I7I7', value, 2)
    earliest_end = ends
    is_valid = is_valid and count > 0 and start <= ends
  elseif kind == DRIFT then
    start, earliest_end, ends, count, carry = parse('<I7I7I7I7I7', value, 2)
    is_valid = is_valid and count > 0 and start <= earliest_end
  else
    --- @inline rules/quota.read
  end
  a, c = ends, carry
  -- check
  is_valid = is_valid and count <= MAX_EXACT and carry <= count
    and earliest_end <= ends and (carry == 0 or earliest_end < ends)
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
      local is_next = window_start - ends < max_drift
      if grants then
        --- @inline rules/quota.next
      end
      count = is_next and carry or 0
      start, earliest_end, ends, carry = window_start, window_end, window_end, 0
      if grants then
        -- No grant that has ended has paid for a charge in the new window.
        local last = now
        --- @inline rules/quota.end_grants
        start = window_start
        if not grants[1] and rolled_over == 0 and remembered_until == 0 then grants, extra = nil, 0 end
      end
    end
  end
  if grants then
    local last = now
    --- @inline rules/quota.end_grants
    --- @inline rules/quota.sum
  end
else
  a, c = 0, 0
end

-- wait
admits = count + cost <= MAX_EXACT and (is_unlimited or count + cost <= limit + extra)

local writes = op == ACQUIRE and admits
if ends == 0 and (writes or op == GRANT) then
  start, earliest_end, ends = window_start, window_end, window_end
end
if writes then -- take
  count = count + cost
  if now >= earliest_end then carry = carry + cost end
  if grants or p4 >= ROLLOVER then
    grants, rolled_over = grants or {}, rolled_over or 0
    window_limit = limit
    remembered_until = p4 >= ROLLOVER and ends + REMEMBERED_WINDOWS * max_length or 0
  end
elseif op == GRANT then
  --- @inline rules/quota.grant
elseif op == REFUND -- refund
  or op == UNDO and count > 0 and start <= taken_at and taken_at < ends then -- undo
  count = math.max(count - cost, 0)
  carry = math.min(carry, count)
  writes = count > 0 or grants ~= nil
  if not writes then after = false end
end
if writes then
  expires_at = ends + MAX_DRIFT + (carry > 0 and max_length + MAX_DRIFT or 0)
  if grants then
    --- @inline rules/quota.write
  elseif earliest_end == ends then
    after = pack('<BI7I7I7', CALENDAR, start, ends, count)
  else
    after = pack('<BI7I7I7I7I7', DRIFT, start, earliest_end, ends, count, carry)
  end
  keeps_ttl = kind ~= TOPPED_UP and not grants and ends == a and (carry > 0) == (c > 0)
  a = ends
end
-- `b` is the count of the window at `now`. `c` is what the subject has in addition to the limit.
b, c, d = count, extra, 0
if not is_valid then admits, after = nil, nil end

--- @section read
--- Reads the top-ups of a value.
local size
start, earliest_end, ends, count, carry, window_limit, rolled_over, remembered_until, size =
  parse('<I7I7I7I7I7I7I7I7I7', value, 2)
grants = {}
is_valid = is_valid and start <= ends and window_limit <= MAX_EXACT and size <= MAX_GRANTS
  and remembered_until < MAX_EXACT + MAX_SPAN
for place = 1, 2 * size, 2 do
  grants[place], grants[place + 1] = parse('<I7I7', value, TOPPED_UP_SIZE + 1 + (place - 1) * 7)
  is_valid = is_valid and grants[place] > (grants[place - 2] or 0) and grants[place] <= MAX_EXACT
    and grants[place + 1] > 0 and grants[place + 1] <= MAX_EXACT
end
--- @inline rules/quota.sum
is_valid = is_valid and extra <= MAX_EXACT

--- @section sum
--- Computes what the subject has in addition to the limit.
extra = rolled_over
for place = 2, #grants, 2 do extra = extra + grants[place] end

--- @section end_grants
--- Lets each grant pay and end that ends at `last` or earlier.
while grants[1] and grants[1] <= last do
  count = math.max(count - grants[2], 0)
  carry = math.min(carry, count)
  start = math.max(start, grants[1])
  table.remove(grants, 1)
  table.remove(grants, 1)
end

--- @section next
--- Pays the count of a window that has ended, and rolls the unused part of the limit over.
local last = ends
--- @inline rules/quota.end_grants
local rest = math.max(count - rolled_over, 0)
local unused, excess, left = math.max(window_limit - rest, 0), math.max(rest - window_limit, 0), {}
for place = 1, #grants, 2 do
  local part = math.min(excess, grants[place + 1])
  excess = excess - part
  if part < grants[place + 1] then
    left[#left + 1], left[#left + 2] = grants[place], grants[place + 1] - part
  end
end
grants, rolled_over = left, 0
if window_start >= remembered_until then
  remembered_until = 0
elseif p4 >= ROLLOVER then
  local fraction = (p4 - p4 % ROLLOVER) / ROLLOVER
  local parts = fraction % 1024
  local whole = (fraction - parts) / 1024
  if not is_next then unused = limit end
  local remainder = unused % whole * parts
  --- @inline rules/quota.sum
  rolled_over = math.min((unused - unused % whole) / whole * parts
    + (remainder - remainder % whole) / whole,
    MAX_EXACT - extra)
end

--- @section grant
--- Adds a grant that ends at `taken_at`. If the state has too many open grants, `admits` is
--- `false`. A grant that has ended changes nothing.
admits = true
if taken_at > now then
  grants, rolled_over, remembered_until = grants or {}, rolled_over or 0, remembered_until or 0
  local place = 1
  while grants[place] and grants[place] < taken_at do place = place + 2 end
  admits = extra + cost <= MAX_EXACT and (grants[place] == taken_at or #grants < 2 * MAX_GRANTS)
  if grants[place] == taken_at then
    grants[place + 1] = grants[place + 1] + cost
  else
    table.insert(grants, place, cost)
    table.insert(grants, place, taken_at)
  end
  window_limit, writes = limit, admits
end

--- @section write
--- Packs a value with top-ups.
after = pack('<BI7I7I7I7I7I7I7I7I7', TOPPED_UP, start, earliest_end, ends, count, carry,
  window_limit, rolled_over, remembered_until, #grants / 2)
for place = 1, #grants, 2 do after = after .. pack('<I7I7', grants[place], grants[place + 1]) end
if remembered_until > 0 then
  expires_at = math.max(expires_at, remembered_until + max_length + MAX_DRIFT)
end
expires_at = math.max(expires_at, grants[#grants - 1] or 0)
--- @inline rules/quota.sum
