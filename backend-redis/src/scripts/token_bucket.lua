-- Token bucket with continuous refill, and GCRA: admits iff debt(t) + c <= B, the debt in units of
-- 1/unit token. Twin of core/src/algorithm/token_bucket.rs.
--
-- Value: kind, time, debt, unit.
local function token_bucket(value, kind, cost, does, max_wait, capacity, unit, refill, tick)
  local time, debt = 0, 0
  local floor = now - now % tick
  if kind == BUCKET then
    local its_unit
    time, debt, its_unit = parse('<I7I7I7', value, 2)
    if its_unit ~= unit and its_unit > 0 then -- adopt
      local fraction = debt % its_unit
      local tokens = (debt - fraction) / its_unit
      local product = fraction * unit
      fraction = product > MAX_EXACT and unit or (product + -product % its_unit) / its_unit
      debt = math.min(tokens * unit + fraction, MAX_EXACT)
    end
    -- at: a clock behind the state stands at it.
    local since = floor - (time + -time % tick)
    if since > 0 then debt = debt - since / tick * refill end
    if floor > time then time = floor end
    if debt <= 0 then time, debt = 0, 0 end
  end

  -- wait
  local wait = 0
  local too_much = debt - (capacity - cost) * unit
  if cost <= capacity and too_much > 0 then
    wait = time + -time % tick + (too_much + -too_much % refill) / refill * tick - now
  end
  local booked = debt + cost * unit
  local admits = cost <= capacity and (wait <= 0 or wait <= max_wait and booked <= MAX_EXACT)

  if does == REFUND then -- give_back
    debt = debt - cost * unit
    if debt <= 0 then return admits, 0, 0, 0, false end
  elseif does == ACQUIRE and admits then -- take
    if debt == 0 then time = floor end
    debt = booked
  else
    return admits, time, debt, admits and wait or 0
  end
  return admits, time, debt, wait,
    pack('<BI7I7I7', BUCKET, time, debt, unit),
    time + -time % tick + (debt + -debt % refill) / refill * tick
end
