-- What a hold holds and has spent, if it was carried out.
if allowed then
  local held_of = {}
  for place = 1, count do
    local _, _, flags = charge(charges, place)
    local held_cost = flags < CHECK_ONLY and costs[place] or 0
    held_of[place] = pack('<I7', outcomes[place] == ALLOWED and held_cost or NOT_COUNTED)
  end
  hold = table.concat(held_of) .. string.rep('\0', 7 * count)
end
