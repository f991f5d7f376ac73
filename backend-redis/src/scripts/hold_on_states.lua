-- The whole of a log that is a list, as a string. `value` is its last element.
local function whole_log(key, value)
  local elements = call('LRANGE', key, '0', '-2')
  if not elements[1] then return value end
  local count = parse('<I2', value, #value - 9)
  for place = 2, #elements do elements[place] = elements[place]:sub(LOG_HEAD + 1) end
  count = count + #elements * CHUNK
  local foot = value:sub(-LOG_FOOT)
  return table.concat(elements) .. value:sub(LOG_HEAD + 1, -LOG_FOOT - 1)
    .. foot:sub(1, 23) .. pack('<I4I2', 0, count) .. foot:sub(30)
end

-- Records a hold that was made, on each state that will refund it when it lapses. The reply to the hold does not count on
-- it.
local life = parse('<I7', id, FINGERPRINT + 1)
for place = 1, hold and count or 0 do
  local k, rule, flags, _, _, _, p2, p3, p4 = charge(charges, place)
  local is_held = outcomes[place] == ALLOWED and flags < CHECK_ONLY and costs[place] > 0
  if is_held and max_open_of(place) > 0 then
    local its = holds[k]
    if not its then
      its = { unspent = 0, number = 0, open = 0, lapsed = 0, due = MODULUS, ends = 0, lives = 0, matters = ends_at(k) }
      if lists[k] then
        its.replaces, values[k], lists[k] = 'list', whole_log(KEYS[k], values[k]), false
      elseif is_string[k] then
        its.replaces = 'string'
      end
      changed[k], holds[k], holds_of[KEYS[k]] = nil, its, its
    end
    written_by(k, rule, p2, p3, p4)
    its.made_score = score(now + life / 2)
    its.made = pack('>I4', its.number) .. hold_key_of(id_key) .. pack('<I7I7I7I7', now, costs[place], 0, now + life)
    its.number, its.open, its.is_changed = (its.number + 1) % 0x100000000, its.open + 1, true
    its.due, its.ends = math.min(its.due, now + life / 2), math.max(its.ends, now + life)
    add_unspent(its, costs[place])
  end
end
