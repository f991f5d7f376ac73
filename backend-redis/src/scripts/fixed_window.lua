-- Fixed window: admits iff count + c <= L. Twin of core/src/algorithm/fixed_window.rs.
--
-- Value: kind (by the start of the windows), ends, count.
local limit, window, phase, start = p1, p2, p3, p4
local ends, count = 0, 0
if kind == start then
  ends, count = parse('<I7I7', value, 2)
  -- Current, unless it has ended. A clock behind the window stays in it.
  if now >= ends then ends, count = 0, 0 end
end

-- wait
admits = count + cost <= limit

local writes = does == ACQUIRE and admits
if writes then -- take
  count = count + cost
  kept = ends > 0
  if not kept then
    local into_window = start == FIXED_ANCHORED and 0 or (now + phase) % window
    ends = now + window - into_window
  end
elseif does == REFUND -- give_back
  or does == UNDO and max_wait < ends and ends - max_wait <= window then -- take_back
  count = count - cost
  writes = count > 0
  if not writes then ends, count, after = 0, 0, false end
end
if writes then after, lives_until = pack('<BI7I7', start, ends, count), ends end
a, b, c = ends, count, 0
