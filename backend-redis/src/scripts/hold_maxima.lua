-- Refuses one more hold on a state with the maximum of open holds.
for place = 1, request:byte(2) do
  local k, _, flags, cost = charge(CALL_HEAD + 1, place)
  local entry, max = holds[k], max_open_of(place)
  if entry and max > 0 and flags < CHECK_ONLY and cost > 0 and entry.open >= max then
    return pack('<BBI4', TOO_MANY_HOLDS, place, entry.open)
  end
end
