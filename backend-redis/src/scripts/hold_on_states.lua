-- Notes a hold that was made, on the states that will give it back. It is none of those that its own reply counts on.
local life = parse('<I7', id, FINGERPRINT + 1)
for place = 1, hold and count or 0 do
  local k, rule, flags, _, _, _, p2, p3, p4 = charge(charges, place)
  local is_held = outcomes[place] == ALLOWED and flags < CHECK_ONLY and costs[place] > 0
  if is_held and refunds:byte(place) == 1 then
    holds[k] = holds[k] or { list = '', ends = 0 }
    written_by(k, rule, p2, p3, p4)
    keep(holds[k], hold_key_of(id_key), now, costs[place], 0, now + life / 2, now + life, NOT_COUNTED)
    put_again(k)
  end
end
