-- Sliding counter: admits iff prev*(W - e) + (cur + c)*W <= L*W, in ticks. Twin of
-- core/src/algorithm/sliding_counter.rs.
--
-- Value: kind, window (microseconds), ends, previous, current.
local function sliding_counter(value, kind, cost, does, _, limit, window, tick)
  local span = window * tick
  local ends, previous, current = 0, 0, 0
  if kind == COUNTER then
    local its_span
    its_span, ends, previous, current = parse('<I7I7I7I7', value, 2)
    if its_span ~= span then
      ends, previous, current = 0, 0, 0
    elseif now >= ends then -- roll
      ends, previous, current = ends + span, current, 0
      if now >= ends or previous == 0 then ends, previous = 0, 0 end
    end
  end

  -- wait: with more than L in the current window alone, no room is left in it.
  local room = limit - cost - current
  local admits = room >= 0
  if admits and previous > 0 then
    -- W - e, rounded up as e rounds down. A clock behind the window is at its start.
    local left = ends - now
    left = math.min((left + -left % tick) / tick, window)
    admits = previous * left <= room * window
  end

  if does == REFUND then -- give_back
    previous = math.max(previous - math.max(cost - current, 0), 0)
    current = math.max(current - cost, 0)
    if previous == 0 and current == 0 then return admits, 0, 0, 0, false end
  elseif does == ACQUIRE and admits then -- take
    if ends == 0 then ends = now - now % span + span end
    current = current + cost
  else
    return admits, ends, previous, current
  end
  return admits, ends, previous, current,
    pack('<BI7I7I7I7', COUNTER, span, ends, previous, current),
    current > 0 and ends + span or ends
end
