-- Fixed window: admits iff count + c <= L. Twin of core/src/algorithm/fixed_window.rs.
--
-- Value: kind (by the start of the windows), window, ends, count.
local function fixed_window(value, kind, cost, does, span, limit, window, phase, start)
  local ends, count = 0, 0
  if kind == start then
    local its_window
    its_window, ends, count = parse('<I7I7I7', value, 2)
    -- Current, unless it has ended. A clock behind the window stays in it.
    if its_window ~= window or now >= ends then ends, count = 0, 0 end
  end

  -- wait
  local admits = count + cost <= limit

  if does == REFUND then -- give_back
    count = count - cost
    if count <= 0 then return admits, 0, 0, 0, false end
  elseif does == ACQUIRE and admits then -- take
    count = count + cost
    if ends == 0 then
      local into_window = start == FIXED_ANCHORED and 0 or (now + phase) % window
      ends = now + window - into_window
    end
  else
    return admits, ends, count, 0
  end
  return admits, ends, count, 0, pack('<BI7I7I7', start, window, ends, count), ends
end
