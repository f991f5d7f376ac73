--- Token bucket with continuous refill, and GCRA. A cost is admitted if and only if debt + cost *
--- unit <= capacity * unit. A unit of debt is 1/unit of a token. core/src/algorithm/token_bucket.rs
--- decides in the same way. lib/rules.lua describes the inputs and outputs.
local capacity, unit, refill, tick = p1, p2, p3, p4
local time, debt, recovers_at, expires_at_before = 0, 0, 0, 0
local written_time, written_debt = 0, 0
local is_valid = true
local floor = now - now % tick
if kind == BUCKET then
  local older
  time, debt, older, recovers_at, expires_at_before = parse('<I7I7I7I7I7', value, 2)
  -- check
  is_valid = time < MAX_EXACT and debt > 0 and debt <= MAX_EXACT and older > 0 and older <= MAX_EXACT
    and time < recovers_at and recovers_at <= expires_at_before and expires_at_before <= MODULUS
  if older ~= unit and older > 0 then -- adopt
    local fraction = debt % older
    local tokens = (debt - fraction) / older
    local product = fraction * unit
    fraction = product > MAX_EXACT and unit or (product + -product % older) / older
    debt = math.min(tokens * unit + fraction, MAX_EXACT)
  end
  written_time, written_debt = time, debt
  -- at: if the clock stepped back, the current time is the time of the state.
  local since = floor - (time + -time % tick)
  if since > 0 then debt = debt - since / tick * refill end
  if floor > time then time = floor end
  if debt <= 0 or now >= recovers_at then time, debt = 0, 0 end
end

-- wait
local wait = 0
local excess = debt - (capacity - cost) * unit
if cost <= capacity and excess > 0 then
  wait = time + -time % tick + (excess + -excess % refill) / refill * tick - now
end
local booked = debt + cost * unit
admits = cost <= capacity and (wait <= 0 or wait <= max_wait and booked <= MAX_EXACT)

local was_there = debt > 0
-- If the script writes nothing, the state ends at `recovers_at` in its value. The policy that wrote
-- the value computed this time, and a current policy with a slower refill would compute a later
-- time.
if was_there then d = recovers_at end
local writes = op == ACQUIRE and admits
if writes then -- take
  if not was_there then time = floor end
  debt = booked
elseif op == REFUND then -- refund
  debt = debt - cost * unit
  writes = debt > 0
  if not writes then time, debt, after = 0, 0, false end
elseif op == UNDO and was_there then -- undo
  local original_cost, taken_tick = max_wait, taken_at - taken_at % tick
  local between = (written_time + -written_time % tick - taken_tick) / tick
  -- Refilled tokens must not be refunded again. So the undo assumes that the whole refill between
  -- the charge and the last write has repaid this charge, and subtracts only the rest of the
  -- charge.
  local undone = math.min(cost * unit, original_cost * unit - between * refill)
  writes = between >= 0 and undone > 0
  if writes and undone >= debt then
    writes, time, debt, after = false, 0, 0, false
  elseif writes then
    -- The time of the state stays the time of the last write. An undo assumes that the refill
    -- between the charge and this time has repaid the charge, so with a later time, the next undo
    -- would subtract less.
    time, debt = written_time, written_debt - undone
  end
end
if writes then
  d, recovers_at = 0, time + -time % tick + (debt + -debt % refill) / refill * tick
  if recovers_at > MODULUS then recovers_at = MODULUS end
  expires_at = recovers_at
  local share = 2
  --- @inline lib/ttl.slack
  after = pack('<BI7I7I7I7I7', BUCKET, time, debt, unit, recovers_at, expires_at)
end
a, b, c = time, debt, admits and wait or 0
if not is_valid then admits, after = nil, nil end
