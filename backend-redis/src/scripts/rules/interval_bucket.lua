--- Token bucket that is refilled once per period. A cost is admitted if and only if debt + cost <=
--- capacity. core/src/algorithm/interval_bucket.rs decides in the same way. lib/rules.lua describes
--- the inputs and outputs.
local capacity, refill, period = p1, p2, p3
local anchor, debt, recovers_at, expires_at_before = 0, 0, 0, 0
local written_anchor, written_debt = 0, 0
local is_valid = true
if kind == INTERVAL then
  anchor, debt, recovers_at, expires_at_before = parse('<I7I7I7I7', value, 2)
  -- check
  is_valid = anchor < MAX_EXACT and debt > 0 and debt <= MAX_EXACT
    and anchor < recovers_at and recovers_at <= expires_at_before and expires_at_before <= MODULUS
  written_anchor, written_debt = anchor, debt
  if now > anchor then -- at: if the clock stepped back, the anchor counts.
    local since = now - anchor
    since = since - since % period
    anchor, debt = anchor + since, debt - since / period * refill
  end
  if debt <= 0 or now >= recovers_at then anchor, debt = 0, 0 end
end

-- wait
local wait = 0
local excess = debt - (capacity - cost)
if cost <= capacity and excess > 0 then
  wait = anchor + (excess + -excess % refill) / refill * period - now
end
local booked = debt + cost
admits = cost <= capacity and (wait <= 0 or wait <= max_wait and booked <= MAX_EXACT)

local was_there = debt > 0
-- If the script writes nothing, the state ends at `recovers_at` in its value. The policy that wrote
-- the value computed this time, and a current policy with a slower refill would compute a later
-- time. If the time does not fit into a value, the client computes it from a, b and c.
if was_there and recovers_at < MODULUS then d = recovers_at end
local writes = op == ACQUIRE and admits
if writes then -- take
  if not was_there then anchor = now end
  debt = booked
elseif op == REFUND then -- refund
  debt = debt - cost
  writes = debt > 0
  if not writes then anchor, debt, after = 0, 0, false end
elseif op == UNDO and was_there then -- undo
  local original_cost, between = max_wait, math.max(written_anchor - taken_at, 0)
  -- Refilled tokens must not be refunded again. So the undo assumes that the whole refill between
  -- the charge and the last write has repaid this charge, and subtracts only the rest of the
  -- charge.
  local undone = math.min(cost, original_cost - (between + -between % period) / period * refill)
  writes = taken_at - written_anchor < period and undone > 0
  if writes and undone >= debt then
    writes, anchor, debt, after = false, 0, 0, false
  elseif writes then -- Keep the anchor: after a later anchor, the next undo would undo less.
    anchor, debt = written_anchor, written_debt - undone
  end
end
if writes then
  d, recovers_at = 0, anchor + (debt + -debt % refill) / refill * period
  if recovers_at > MODULUS then recovers_at = MODULUS end
  expires_at = recovers_at
  local share = 2
  --- @inline lib/ttl.slack
  after = pack('<BI7I7I7I7', INTERVAL, anchor, debt, recovers_at, expires_at)
end
a, b, c = anchor, debt, admits and wait or 0
if not is_valid then admits, after = nil, nil end
