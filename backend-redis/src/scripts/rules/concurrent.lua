--- Slots: admits a cost if and only if count + cost <= limit. Twin of
--- core/src/algorithm/concurrent.rs. lib/rules.lua describes the inputs and outputs.
---
--- Each slot belongs to a hold, so the key lives as long as the holds on the state.
local limit, count, is_valid = p1, 0, true
if kind == SLOTS then
  count = parse('<I7', value, 2)
  -- check
  is_valid = count > 0 and count <= MAX_EXACT
end

-- wait
admits = cost == 0 or count + cost <= limit

local writes = op == ACQUIRE and admits and cost > 0
if writes then -- take
  count = count + cost
elseif op == REFUND or op == UNDO then -- refund, undo
  count = count - cost
  writes = count > 0
  if not writes then count, after = 0, false end
end
if writes then after, expires_at = pack('<BI7', SLOTS, count), 0 end
a, b, c = 0, count, 0
if not is_valid then admits, after = nil, nil end
