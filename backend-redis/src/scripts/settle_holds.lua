-- What settle.lua does where states have holds.
--
-- Reply: WITH_HOLDS instead of 0, and after the charges for each charge the part that state_holds.lua describes.
--> state_holds.lua

local own_key = hold_key_of(id_key)
local read_state = read
read = function(key)
  local value, kind, blocked_until = read_holds(key)
  if value == nil then return read_state(key) end
  return value or nil, kind, blocked_until, false
end

-- Finds this hold among the holds with a score.
local function find(key, its_score)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score(its_score), score(its_score))) do
    if member:sub(HOLD_NUMBER + 1, HOLD_KEY) == own_key then return member end
  end
end

-- What is left of what the hold holds of a charge. Records on the state where the hold is.
local function left_of(place, its_held)
  local key = KEYS[place]
  local its = holds_of[key]
  if not its or its_held == NOT_COUNTED then return its_held end
  its.own, its.is_open = find(key, lapses_at), true
  if its.own then return its_held end
  its.own, its.is_open = find(key, -(taken_at + life)), false
  if not its.own or #its.own ~= STATE_HOLD + 7 then return its_held end
  return math.max(its_held - parse('<I7', its.own, STATE_HOLD + 1), 0)
end

-- Changes the hold on the state of a charge, or removes it, and writes the state.
local function change_hold(place, state, total)
  local key = KEYS[place]
  local its, value = holds_of[key], state.value or string.char(NONE)
  if not its then return end
  local blocked_until = state.blocked_until
  if state.after ~= nil then
    value = state.after or string.char(NONE)
    if blocked_until <= now then blocked_until = 0 end
    local _, rule, _, _, _, _, p2, p3, p4 = charge(place)
    its.rule, its.p2, its.p3, its.p4 = rule, p2, p3, p4
  end
  if its.own then
    local its_taken_at, cost, spent, expires_at = parse('<I7I7I7I7', its.own, HOLD_KEY + 1)
    local is_open, its_lapses_at = its.is_open, lapses_at
    if is_open then add_unspent(its, -math.max(cost - spent, 0)) end
    if op == EXTEND then
      local span = parse('<I7', id, FINGERPRINT + 1) / 2
      its_lapses_at = math.max(lapses_at, now + span)
      expires_at = math.max(taken_at + life, its_lapses_at + span)
    else
      spent = parse('<I7', total)
    end
    local member = its.own:sub(1, HOLD_KEY) .. pack('<I7I7I7I7', its_taken_at, cost, spent, expires_at)
      .. its.own:sub(STATE_HOLD + 1)
    if op == SETTLE then
      member = nil
      if is_open then its.open = math.max(its.open - 1, 0) else its.lapsed = math.max(its.lapsed - 1, 0) end
    else
      its.made, its.made_score = member, score(is_open and its_lapses_at or -expires_at)
      if is_open then add_unspent(its, math.max(cost - spent, 0)) end
      its.ends = math.max(its.ends, expires_at)
    end
    if member ~= its.own then its.removed = its.own end
  end
  write_holds(key, its, value, blocked_until, state.after and state.expires_at or 0)
end

-- Completes the reply to a call.
local function add_open_holds(answer)
  answer[1] = pack('<BI7B', VERDICTS, now, WITH_HOLDS)
  for place = 1, count do answer[#answer + 1] = open_holds(KEYS[place], holds_of[KEYS[place]], nil, false) end
end
