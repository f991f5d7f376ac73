--- Fixed window. A cost is admitted if and only if count + cost <= limit.
--- core/src/algorithm/fixed_window.rs decides in the same way. lib/rules.lua describes the inputs
--- and outputs.
local limit, window, phase, start = p1, p2, p3, p4
local ends, count = 0, 0
local is_valid = true
if kind == start then
  ends, count = parse('<I7I7', value, 2)
  -- check
  is_valid = count > 0 and count <= MAX_EXACT and ends < MAX_EXACT + window
    and (start ~= FIXED_ALIGNED or ends > 0 and ends % window == 0)
  -- The window in the value is the current window until it ends, even if the clock stepped back to
  -- a time before the window.
  if now >= ends then ends, count = 0, 0 end
end

-- wait
admits = count + cost <= limit

local writes = op == ACQUIRE and admits
if writes then -- take
  count = count + cost
  keeps_ttl = ends > 0
  if not keeps_ttl then
    local into_window = start == FIXED_ANCHORED and 0 or (now + phase) % window
    ends = now + window - into_window
  end
elseif op == REFUND -- refund
  or op == UNDO and taken_at < ends and ends - taken_at <= window then -- undo
  count = count - cost
  writes = count > 0
  if not writes then ends, count, after = 0, 0, false end
end
if writes then after, expires_at = pack('<BI7I7', start, ends, count), ends end
a, b, c = ends, count, 0
if not is_valid then admits, after = nil, nil end
