--- The functions of settle.lua for states with holds (see lib/state_holds.lua).
---
--- Reply: as in settle.lua, but with WITH_HOLDS instead of 0, and after the charges the result of
--- `open_holds` for each charge.
--- @include lib/state_holds

local own_key = hold_key_of(id_key)
local read_state = read
read = function(key)
  local value, kind, blocked_until = read_holds(key)
  if value == nil then return read_state(key) end
  return value or nil, kind, blocked_until, false
end

-- Finds this hold among the holds with a score.
local function find(key, at_score)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score(at_score), score(at_score))) do
    if member:sub(HOLD_NUMBER + 1, HOLD_KEY) == own_key then return member end
  end
end

-- Returns the cost that the hold still holds of a charge, and remembers the hold in the entry of the
-- state.
local function left_of(place, held_cost, epoch)
  local key = KEYS[place]
  local entry = holds_of[key]
  if epoch ~= NO_EPOCH or held_cost == NOT_COUNTED then return held_cost end
  if not entry then return 0 end
  entry.own, entry.is_open = find(key, lapses_at), true
  if entry.own then return held_cost end
  entry.own, entry.is_open = find(key, -(taken_at + life)), false
  if not entry.own or #entry.own ~= STATE_HOLD + 7 then return 0 end
  return math.max(held_cost - parse('<I7', entry.own, STATE_HOLD + 1), 0)
end

-- Changes the hold on the state of a charge, or removes it, and writes the state.
local function change_hold(place, state, total)
  local key = KEYS[place]
  local entry, value = holds_of[key], state.value or string.char(NONE)
  if not entry then return end
  local blocked_until = state.blocked_until
  if state.after ~= nil then
    value = state.after or string.char(NONE)
    if blocked_until <= now then blocked_until = 0 end
    local _, rule, _, _, _, _, p2, p3, p4 = charge(place)
    entry.rule, entry.p2, entry.p3, entry.p4 = rule, p2, p3, p4
  end
  if entry.own then
    local hold_taken_at, cost, spent, expires_at = parse('<I7I7I7I7', entry.own, HOLD_KEY + 1)
    local is_open, hold_lapses_at = entry.is_open, lapses_at
    if is_open then add_unspent(entry, -math.max(cost - spent, 0)) end
    if op == EXTEND then
      local span = parse('<I7', id, FINGERPRINT + 1) / 2
      hold_lapses_at = math.max(lapses_at, now + span)
      expires_at = math.max(taken_at + life, hold_lapses_at + span)
    else
      spent = parse('<I7', total)
    end
    local member = entry.own:sub(1, HOLD_KEY) .. pack('<I7I7I7I7', hold_taken_at, cost, spent, expires_at)
      .. entry.own:sub(STATE_HOLD + 1)
    if op == SETTLE then
      member = nil
      if is_open then
        entry.open = math.max(entry.open - 1, 0)
      else
        entry.lapsed = math.max(entry.lapsed - 1, 0)
      end
    else
      entry.made, entry.made_score = member, score(is_open and hold_lapses_at or -expires_at)
      if is_open then add_unspent(entry, math.max(cost - spent, 0)) end
      entry.ends = math.max(entry.ends, expires_at)
    end
    if member ~= entry.own then entry.removed = entry.own end
  end
  write_holds(key, entry, value, blocked_until, state.after and state.expires_at or 0)
end

-- Completes the reply to the call.
local function add_open_holds(answer)
  answer[1] = pack('<BI7B', VERDICTS, now, WITH_HOLDS)
  for place = 1, count do
    answer[#answer + 1] = open_holds(KEYS[place], holds_of[KEYS[place]], nil, false)
  end
end
