-- Refuses one more hold on a state with the maximum of open holds.
for place = 1, request:byte(2) do
  local k, _, flags, cost = charge(CALL_HEAD + 1, place)
  local its, max = holds[k], max_open_of(place)
  if its and max > 0 and flags < CHECK_ONLY and cost > 0 and its.open >= max then
    return pack('<BBI4', TOO_MANY_HOLDS, place, its.open)
  end
end
