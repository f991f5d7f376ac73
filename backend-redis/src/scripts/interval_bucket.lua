-- Token bucket that refills by intervals: admits iff debt(t) + c <= B. Twin of
-- core/src/algorithm/interval_bucket.rs.
--
-- Value: kind, period, anchor, debt (tokens).
local function interval_bucket(value, kind, cost, does, max_wait, capacity, refill, period)
  local anchor, debt = 0, 0
  if kind == INTERVAL then
    local its_period
    its_period, anchor, debt = parse('<I7I7I7', value, 2)
    if its_period ~= period then
      anchor, debt = 0, 0
    elseif now > anchor then -- at: a clock behind the anchor stands at it.
      local since = now - anchor
      since = since - since % period
      anchor, debt = anchor + since, debt - since / period * refill
      if debt <= 0 then anchor, debt = 0, 0 end
    end
  end

  -- wait
  local wait = 0
  local too_much = debt - (capacity - cost)
  if cost <= capacity and too_much > 0 then
    wait = anchor + (too_much + -too_much % refill) / refill * period - now
  end
  local booked = debt + cost
  local admits = cost <= capacity and (wait <= 0 or wait <= max_wait and booked <= MAX_EXACT)

  if does == REFUND then -- give_back
    debt = debt - cost
    if debt <= 0 then return admits, 0, 0, 0, false end
  elseif does == ACQUIRE and admits then -- take
    if debt == 0 then anchor = now end
    debt = booked
  else
    return admits, anchor, debt, admits and wait or 0
  end
  return admits, anchor, debt, wait,
    pack('<BI7I7I7', INTERVAL, period, anchor, debt),
    anchor + (debt + -debt % refill) / refill * period
end
