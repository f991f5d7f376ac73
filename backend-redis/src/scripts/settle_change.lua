-- Finds the change of a state, and its cost. The inputs are op, total (the actual cost), held_cost,
-- spent_cost, value, rule, p1, p2, p3, p4, and a, b, c from a peek by the rule. The outputs are
-- cost (0 if nothing changes) and change, limit, taken and max: the operation, limit, max_wait and
-- max_records that the rule needs for the change (see rules.lua).
local charged, change, cost, limit, taken, max = math.max(held_cost, spent_cost), PEEK, 0, p1, held_cost, nil
if op == EXTEND or held_cost == NOT_COUNTED then
  cost = 0
elseif total > charged then
  change, cost = ACQUIRE, math.min(total - charged, room(rule, a, b, c, p2, p3, p4))
  limit, taken, max = math.huge, 0, max_records(rule, p1, p2, p3)
elseif op == SETTLE and total < held_cost and value then
  change, cost = UNDO, held_cost - total
end
