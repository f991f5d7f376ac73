-- Reduces the refund of a hold by the refunds of its state since the hold was made, because one of
-- them may have refunded the hold. Each of them counts once. The inputs are change, cost, taken,
-- taken_at, rule, a, b, c, p2, by_rule (the rule on the state with another cost, op and max_wait),
-- epoch_key and epoch_values. The outputs are cost, taken, refunds_after (the value to write to the
-- epoch) and out_of_reach (greater than 0 if a log has too many newer records to find the hold).
local refunds, refunds_after, out_of_reach = REFUNDS_OF_STATE, nil, 0
local refunded, refunded_at = 0, 0
if epoch_values[epoch_key] then
  refunded, refunded_at = parse('<I7I7', epoch_values[epoch_key], EPOCH_NUMBER + 9)
elseif refunds then
  refunded, refunded_at = refunds.refunded, refunds.refunded_at
end
if change == UNDO and refunded > 0 and refunded_at >= taken_at then
  local before, unit = held(rule, a, b, c, p2)
  local possible, is_valid, _, _, unreachable, _, after = 0, by_rule(value, kind, cost, UNDO, taken, limit)
  if after ~= nil then
    local state = after or string.char(NONE)
    local _, a_after, b_after, c_after = by_rule(state, state:byte(), 0, PEEK, 0, limit)
    possible = before - held(rule, a_after, b_after, c_after, p2)
    possible = (possible - possible % unit) / unit
  elseif is_valid ~= nil then
    out_of_reach = unreachable
  end
  local counted = math.min(refunded, possible)
  -- A value that is not valid keeps its cost, so that the caller of the rule reports it.
  if is_valid ~= nil then cost, taken = possible - counted, taken - counted end
  if counted > 0 and epoch_values[epoch_key] then
    refunds_after = epoch_values[epoch_key]:sub(1, EPOCH_NUMBER + 8) .. pack('<I7I7', refunded - counted, refunded_at)
  elseif counted > 0 then
    refunds.refunded = refunded - counted
  end
end
