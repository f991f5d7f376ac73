--- Wraps the functions of settle.lua for states with holds (see lib/state_holds.lua).
---
--- Reply: the reply of settle.lua with WITH_HOLDS instead of 0, followed by the result of
--- `open_holds` for each charge.

--- @include lib/state_holds

local own_hold_key = hash_id_key(id_key)
local read_without_holds = read
read = function(key)
  local value, kind, blocked_until, _, offenses = read_holds(key)
  if value == nil then return read_without_holds(key) end
  return value or nil, kind, blocked_until, false, offenses
end

-- Finds the hold that the call settles or extends, among the holds with the score `at_score`.
local function find_hold(key, at_score)
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score(at_score), score(at_score))) do
    if member:sub(HOLD_NUMBER + 1, HOLD_KEY) == own_hold_key then return member end
  end
end

-- Returns the held cost of a charge, minus the part that was refunded at the lapse. Stores the hold
-- in the foot of the state as `own_hold`.
local function still_held(place, held_cost, epoch)
  local key = KEYS[place]
  local foot = feet_by_key[key]
  if epoch ~= NO_EPOCH or held_cost == NOT_COUNTED then return held_cost end
  if not foot then return 0 end
  foot.own_hold, foot.own_is_open = find_hold(key, lapses_at), true
  if foot.own_hold then return held_cost end
  foot.own_hold, foot.own_is_open = find_hold(key, -(taken_at + life)), false
  if not foot.own_hold or #foot.own_hold ~= STATE_HOLD + 7 then return 0 end
  return math.max(held_cost - parse('<I7', foot.own_hold, STATE_HOLD + 1), 0)
end

-- Changes or removes the hold on the state of a charge, and writes the state.
local function change_hold(place, evaluation, total)
  local key = KEYS[place]
  local foot, value = feet_by_key[key], evaluation.value or string.char(NONE)
  if not foot then return end
  local blocked_until, offenses = evaluation.blocked_until, evaluation.offenses
  local _, rule, _, _, _, limit, p2, p3, p4 = parse_charge(place)
  if evaluation.after ~= nil then
    value = evaluation.after or string.char(NONE)
    if blocked_until <= now then blocked_until = 0 end
    offenses = remembered(offenses)
    foot.rule, foot.p2, foot.p3, foot.p4 = rule, p2, p3, p4
  end
  if foot.own_hold then
    local hold_taken_at, cost, spent, expires_at = parse('<I7I7I7I7', foot.own_hold, HOLD_KEY + 1)
    local own_is_open, hold_lapses_at = foot.own_is_open, lapses_at
    if own_is_open then add_unspent(foot, -math.max(cost - spent, 0)) end
    if op == EXTEND then
      local span = parse('<I7', id, FINGERPRINT + 1) / 2
      hold_lapses_at = math.max(lapses_at, now + span)
      expires_at = math.max(taken_at + life, hold_lapses_at + span)
    else
      spent = parse('<I7', total)
    end
    if evaluation.is_revived then
      forget_lapsed(foot, foot.own_hold)
      foot.open, foot.due, own_is_open = foot.open + 1, math.min(foot.due, hold_lapses_at), true
    end
    local member = foot.own_hold:sub(1, HOLD_KEY)
      .. pack('<I7I7I7I7', hold_taken_at, cost, spent, expires_at)
    if not own_is_open then member = member .. foot.own_hold:sub(STATE_HOLD + 1) end
    if op == SETTLE then
      member = nil
      if own_is_open then
        foot.open = math.max(foot.open - 1, 0)
      else
        forget_lapsed(foot, foot.own_hold)
      end
    else
      foot.new_hold, foot.new_score = member, score(own_is_open and hold_lapses_at or -expires_at)
      if own_is_open then add_unspent(foot, math.max(cost - spent, 0)) end
      foot.ends = math.max(foot.ends, expires_at)
    end
    if member ~= foot.own_hold then foot.old_hold = foot.own_hold end
  end
  if op == SETTLE and foot.waiters > 0 then wake_waiters(key, foot, value, limit) end
  write_holds(key, foot, value, blocked_until, offenses,
    evaluation.after and evaluation.expires_at or 0)
end

-- Adds the open holds on the state of each charge to the reply to the call.
local function add_open_holds(answer)
  answer[1] = pack('<BI7B', VERDICTS, now, WITH_HOLDS)
  for place = 1, count do
    answer[#answer + 1] = open_holds(KEYS[place], feet_by_key[KEYS[place]], nil, false)
  end
end
