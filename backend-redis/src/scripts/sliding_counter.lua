-- Sliding counter: admits iff prev*(W - e) + (cur + c)*W <= L*W, in ticks. Twin of
-- core/src/algorithm/sliding_counter.rs.
--
-- Value: kind, ends, previous, current.
local limit, window, tick = p1, p2, p3
local span = window * tick
local ends, previous, current, lived_until = 0, 0, 0, 0
if kind == COUNTER then
  ends, previous, current = parse('<I7I7I7', value, 2)
  if now >= ends then -- roll
    ends, previous, current = ends + span, current, 0
    if now >= ends or previous == 0 then ends, previous = 0, 0 end
  elseif current > 0 then
    lived_until = ends + span
  end
end

-- wait: with more than L in the current window alone, no room is left in it.
local room = limit - cost - current
admits = room >= 0
if admits and previous > 0 then
  -- W - e, rounded up as e rounds down. A clock behind the window is at its start.
  local left = ends - now
  left = (left + -left % tick) / tick
  if left > window then left = window end
  admits = previous * left <= room * window
end

local writes = does == ACQUIRE and admits
if writes then -- take
  if ends == 0 then ends = now - now % span + span end
  current = current + cost
elseif does == REFUND then -- give_back
  previous = math.max(previous - math.max(cost - current, 0), 0)
  current = math.max(current - cost, 0)
  writes = previous > 0 or current > 0
  if not writes then ends, after = 0, false end
elseif does == UNDO and max_wait < ends then -- take_back
  local taken_at, before = max_wait, previous + current
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
  lives_until = current > 0 and ends + span or ends
  kept = lives_until == lived_until
end
a, b, c = ends, previous, current
