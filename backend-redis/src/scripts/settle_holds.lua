-- What settle.lua does where states have holds.
--
-- Reply: WITH_HOLDS instead of 0, and behind the charges for each what state_holds.lua says.
--> state_holds.lua

-- By place.
local holds = {}
local own_key = hold_key_of(id_key)

-- Writes a state and its holds. `value` is the state's, without its holds and its block.
local function write_back(key, value, blocked_until, its, is_list)
  if its.list == '' and blocked_until == 0 and value:byte() == NONE then return call('UNLINK', key) end
  local ends, ttl = math.max(its.ends, blocked_until), nil
  local keeps_ttl = now - now % 1000 + call('PTTL', key) * 1000 >= ends
  --> ttl.lua
  value = holding(blocking(value, blocked_until), its)
  if is_list then
    call('LSET', key, '-1', value)
    if not keeps_ttl then call('PEXPIRE', key, ttl) end
  elseif keeps_ttl then
    call('SET', key, value, 'KEEPTTL')
  else
    call('PSETEX', key, ttl, value)
  end
end

-- The state of a charge that was read now, after what has lapsed was given back.
local function after_lapses(place, value, kind, blocked_until, is_list)
  local its = holds_in_value
  if kind == FOREIGN or not its then return value, kind, is_list end
  holds[place], holds_in_value = its, nil
  value, kind, is_list = lapse(its, value, kind, KEYS[place], is_list)
  if its.is_written then write_back(KEYS[place], value, blocked_until, its, is_list) end
  return value, kind, is_list
end

-- What is left of what the hold holds of a charge.
local function left_of(place, its_held)
  local at = holds[place] and find(holds[place], own_key)
  if not at or its_held == NOT_COUNTED then return its_held end
  local given_back = parse('<I7', holds[place].list, at + HOLD_GIVEN_BACK)
  return given_back == NOT_COUNTED and its_held or math.max(its_held - given_back, 0)
end

-- Changes the hold on the state of a charge, or removes it, and writes the state.
local function change_hold(place, state, total)
  local its, value, is_list = holds[place], state.value, state.is_list
  if not its then return end
  if state.after ~= nil then
    value, is_list = state.after or string.char(NONE), state.plan and true
    local _, rule, _, _, _, _, p2, p3, p4 = charge(place)
    its.rule, its.p2, its.p3, its.p4 = rule, p2, p3, p4
  end
  local at = find(its, own_key)
  if op == EXTEND and not at then return end
  if at then
    local its_taken_at, cost, spent, its_lapses_at, expires_at, given_back =
      parse('<I7I7I7I7I7I7', its.list, at + HOLD_KEY)
    if op == EXTEND then
      local span = parse('<I7', id, FINGERPRINT + 1) / 2
      its_lapses_at = math.max(lapses_at, now + span)
      expires_at = math.max(taken_at + life, its_lapses_at + span)
    else
      spent = parse('<I7', total)
    end
    if op == SETTLE then
      forget(its, at)
    else
      keep(its, own_key, its_taken_at, cost, spent, its_lapses_at, expires_at, given_back)
    end
  end
  local blocked_until = state.blocked_until
  if state.after ~= nil and blocked_until <= now then blocked_until = 0 end
  write_back(KEYS[place], value, blocked_until, its, is_list)
  state.value, state.is_list = value, is_list
end

-- Completes the reply to a call.
local function add_open_holds(answer, states)
  answer[1] = pack('<BI7B', VERDICTS, now, WITH_HOLDS)
  for place, state in ipairs(states) do
    answer[#answer + 1] = open_holds(holds[place], state.value, state.is_list)
  end
end
