-- The whole of a log that is a list, as a string. `value` is its last element.
local function whole_log(key, value)
  local sealed, count = parse('<I4I2', value, #value - 13)
  if sealed == 0 then return value end
  local elements = {}
  for place = 1, sealed do
    local element = call('LINDEX', key, string.format('%d', place - 1))
    elements[place] = place == 1 and element or element:sub(LOG_HEAD + 1)
  end
  count = count + sealed * CHUNK
  local foot = value:sub(-LOG_FOOT)
  return table.concat(elements) .. value:sub(LOG_HEAD + 1, -LOG_FOOT - 1)
    .. foot:sub(1, 23) .. pack('<I4I2', 0, count) .. foot:sub(30)
end

-- Records a hold that was made, on each state that will refund it when it lapses. The reply to the
-- hold does not count on it.
local life = parse('<I7', id, FINGERPRINT + 1)
for place = 1, hold and count or 0 do
  local k, rule, flags, _, _, _, p2, p3, p4 = charge(charges, place)
  local is_held = outcomes[place] == ALLOWED and flags < CHECK_ONLY and costs[place] > 0
  if is_held and max_open_of(place) > 0 then
    local entry = holds[k]
    if not entry then
      entry = { refunded = 0, refunded_at = 0, unspent = 0, number = 0, open = 0, lapsed = 0, due = MODULUS, ends = 0, lives = 0, matters = ends_at(k) }
      if lists[k] then
        entry.replaces, values[k], lists[k] = 'list', whole_log(KEYS[k], values[k]), false
      elseif is_string[k] then
        entry.replaces = 'string'
      end
      changed[k], holds[k], holds_of[KEYS[k]] = nil, entry, entry
    end
    written_by(k, rule, p2, p3, p4)
    entry.made_score = score(now + life / 2)
    entry.made = pack('>I4', entry.number) .. hold_key_of(id_key) .. pack('<I7I7I7I7', now, costs[place], 0, now + life)
    entry.number, entry.open, entry.is_changed = (entry.number + 1) % 0x100000000, entry.open + 1, true
    entry.due, entry.ends = math.min(entry.due, now + life / 2), math.max(entry.ends, now + life)
    add_unspent(entry, costs[place])
  end
end
