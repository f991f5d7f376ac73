--- Sliding counter. The count of the previous window is multiplied by the fraction of the previous
--- window that is within the last `window` ticks. A cost is admitted if and only if
---
---     previous * (window - elapsed) + (current + cost) * window <= limit * window
---
--- core/src/algorithm/sliding_counter.rs decides in the same way. lib/rules.lua describes the
--- inputs and outputs.
local limit, window, tick = p1, p2, p3
local span = window * tick
local ends, previous, current, expires_at_before = 0, 0, 0, 0
local is_valid = true
if kind == COUNTER then
  ends, previous, current = parse('<I7I7I7', value, 2)
  -- check
  is_valid = ends > 0 and ends % span == 0 and ends < MAX_EXACT + span
    and previous <= MAX_EXACT and current <= MAX_EXACT and previous + current > 0
  if now >= ends then -- roll
    ends, previous, current = ends + span, current, 0
    if now >= ends or previous == 0 then ends, previous = 0, 0 end
  elseif current > 0 then
    expires_at_before = ends + span
  end
end

-- wait: the cost is denied if the count of the current window and the cost together exceed the
-- limit.
local room = limit - cost - current
admits = room >= 0
if admits and previous > 0 then
  -- The number of remaining ticks is rounded up, because the number of elapsed ticks is rounded
  -- down. If the clock stepped back to an earlier window, the whole window remains.
  local remaining_ticks = ends - now
  remaining_ticks = (remaining_ticks + -remaining_ticks % tick) / tick
  if remaining_ticks > window then remaining_ticks = window end
  admits = previous * remaining_ticks <= room * window
end

local writes = op == ACQUIRE and admits
if writes then -- take
  if ends == 0 then ends = now - now % span + span end
  current = current + cost
elseif op == REFUND then -- refund
  previous = math.max(previous - math.max(cost - current, 0), 0)
  current = math.max(current - cost, 0)
  writes = previous > 0 or current > 0
  if not writes then ends, after = 0, false end
elseif op == UNDO and taken_at < ends then -- undo
  local before = previous + current
  if taken_at >= ends - span then
    current = math.max(current - cost, 0)
  elseif taken_at >= ends - 2 * span then
    previous = math.max(previous - cost, 0)
  end
  writes = previous + current < before
  if writes and previous + current == 0 then writes, ends, after = false, 0, false end
end
if writes then
  after = pack('<BI7I7I7', COUNTER, ends, previous, current)
  expires_at = current > 0 and ends + span or ends
  keeps_ttl = expires_at == expires_at_before
end
a, b, c = ends, previous, current
if not is_valid then admits, after = nil, nil end
