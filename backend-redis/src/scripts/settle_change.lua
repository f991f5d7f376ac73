-- What is to be changed in a state, and by how much. In: op, total (what was used); its_held, its_spent; value; rule; a, b,
-- c (of a peek by the rule); p1, p2, p3, p4. Out: cost (0 if nothing changes); change, limit, taken, max: as what, with
-- which limit, max_wait and max_records the rule does that (see rules.lua).
local charged, change, cost, limit, taken, max = math.max(its_held, its_spent), PEEK, 0, p1, its_held, nil
if op == EXTEND or its_held == NOT_COUNTED then
  cost = 0
elseif total > charged then
  change, cost = ACQUIRE, math.min(total - charged, room(rule, a, b, c, p2, p3, p4))
  limit, taken, max = math.huge, 0, max_records(rule, p1, p2, p3)
elseif op == SETTLE and total < its_held and value then
  change, cost = UNDO, its_held - total
end
