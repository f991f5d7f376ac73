--- Parts of the settlement or extension of a hold, in the order in which a script executes them.

--- @section read
--- Reads the record of the hold.
---
--- Inputs: id_key, id, op. Outputs: record, the outputs of lib/record.hold, life, taken_at, spent
--- (the spent costs of all charges before this call) and costs (the spent costs that this call
--- reports), and is_late (whether the call is an extension after the lapse). The section ends the
--- script if the hold is unknown or already settled. It also ends a script without state holds if
--- the call is late.
local minimum_and_costs = id:sub(ID_REQUEST + 1)
--- @inline lib/record.id
if not record then return string.char(HOLD_UNKNOWN) end
--- @inline lib/record.hold
local life, _, taken_at = parse('<I7BI7', record, FINGERPRINT + 1)
local spent, costs = record:sub(spent_at, epochs_at - 1), minimum_and_costs:sub(8)
if #record >= replies_at + reply_size then
  local settlement = record:sub(replies_at + reply_size)
  if op == SETTLE and spent == costs then return settlement end
  return string.char(HOLD_SETTLED) .. spent .. settlement
end
local is_late = op == EXTEND and now >= lapses_at
--- @when plain
if is_late then return pack('<BI7', HOLD_LAPSED, now - lapses_at) end
--- @end

--- @section change
--- Computes the change that a settlement makes to a state.
---
--- Inputs: op, total (the actual cost), held_cost, spent_cost, value, rule, p1 to p4, and a, b, c
--- of a peek by the rule. Outputs: change (an operation of the rule), cost (0 if nothing changes),
--- and three inputs of the rule for this change (see lib/rules.lua): limit (as p1), original_cost
--- (as max_wait) and max (as max_records).
local charged_cost, change, cost, limit, original_cost, max =
  math.max(held_cost, spent_cost), PEEK, 0, p1, held_cost, nil
if op == EXTEND or held_cost == NOT_COUNTED then
  cost = 0
elseif total > charged_cost then
  change, cost = ACQUIRE, math.min(total - charged_cost, room(rule, a, b, c, p2, p3, p4))
  limit = rule >= QUOTA and -1 - p1 or math.huge
  original_cost, max = 0, max_records(rule, p1, p2, p3)
elseif op == SETTLE and total < held_cost and value then
  change, cost = UNDO, held_cost - total
end

--- @section refunds
--- Reduces the refund of a settlement by the earlier refunds that calls have made on the same state
--- since the hold, because these refunds have possibly refunded the hold already. For example, a
--- settlement that would refund 5 after an earlier refund of 3 refunds only 2. Each earlier refund
--- is subtracted only once.
---
--- Inputs: change, cost, original_cost, taken_at, rule, a, b, c, p2, epoch_key, epoch_values, and
--- apply_rule, which applies the rule to a state. Outputs: cost, original_cost, refunds_after (the
--- new value of the epoch) and out_of_reach. out_of_reach is greater than 0 if the record of the
--- hold in a log is older than the newest MAX_UNDO records.
local refunds, refunds_after, out_of_reach = STATE_HOLDS, nil, 0
local refunded, refunded_at = 0, 0
if epoch_values[epoch_key] then
  refunded, refunded_at = parse('<I7I7', epoch_values[epoch_key], EPOCH_NUMBER + 9)
elseif refunds then
  refunded, refunded_at = refunds.refunded, refunds.refunded_at
end
if change == UNDO and refunded > 0 and refunded_at >= taken_at then
  local before, unit = held(rule, a, b, c, p2)
  local possible_refund, is_valid, _, _, unreachable, _, after =
    0, apply_rule(value, kind, cost, UNDO, original_cost, limit)
  if after ~= nil then
    local state_after = after or string.char(NONE)
    local _, a_after, b_after, c_after = apply_rule(state_after, state_after:byte(), 0, PEEK, 0, limit)
    possible_refund = before - held(rule, a_after, b_after, c_after, p2)
    possible_refund = (possible_refund - possible_refund % unit) / unit
  elseif is_valid ~= nil then
    out_of_reach = unreachable
  end
  local counted_refund = math.min(refunded, possible_refund)
  -- If the value is foreign, keep the cost, because the next step reports the foreign value only if
  -- the cost is above 0.
  if is_valid ~= nil then
    cost, original_cost = possible_refund - counted_refund, original_cost - counted_refund
  end
  if counted_refund > 0 and epoch_values[epoch_key] then
    refunds_after = epoch_values[epoch_key]:sub(1, EPOCH_NUMBER + 8)
      .. pack('<I7I7', refunded - counted_refund, refunded_at)
  elseif counted_refund > 0 then
    refunds.refunded = refunded - counted_refund
  end
end

--- @section write
--- Writes the record of the hold.
---
--- Inputs: the outputs of the section `read`, totals (the new spent costs of all charges), reply
--- and epoch_values.
if op == EXTEND then
  local span = parse('<I7', id, FINGERPRINT + 1) / 2
  lapses_at = math.max(lapses_at, now + span)
  local ends, ttl = math.max(taken_at + life, lapses_at + span), nil
  record = record:sub(1, FINGERPRINT) .. pack('<I7', ends - taken_at)
    .. record:sub(ID_REQUEST, ID_HEAD) .. pack('<I7', lapses_at) .. record:sub(ID_HEAD + 8)
  --- @inline lib/ttl.text
  call('PSETEX', id_key, ttl, record)
  -- A settlement needs both the record of the hold and the epoch. So extend each epoch that ends
  -- before the record.
  local expires_at = taken_at + parse('<I7', record, FINGERPRINT + 1)
  for epoch_key, value in pairs(epoch_values) do
    if parse('<I7', value, EPOCH_NUMBER + 2) < expires_at then
      local remaining_life = expires_at - now
      local epoch_ends = math.min(expires_at + (remaining_life - remaining_life % 2) / 2, MODULUS)
      ends = epoch_ends
      --- @inline lib/ttl.text
      call('PSETEX', epoch_key, ttl,
        value:sub(1, EPOCH_NUMBER + 1) .. pack('<I7', epoch_ends) .. value:sub(EPOCH_NUMBER + 9))
    end
  end
else
  local settlement = ''
  if op == SETTLE then settlement, totals = reply, costs end
  record = record:sub(1, spent_at - 1) .. totals .. record:sub(epochs_at) .. settlement
  call('SET', id_key, record, 'KEEPTTL')
end
