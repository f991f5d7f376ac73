--- Wraps the functions of batch.lua for states with holds (see lib/state_holds.lua).
---
--- The reply to a call that the fast path of batch.lua decides is the same as in batch.lua. Every
--- other reply to a call begins with WITH_HOLDS instead of 0, and ends with the result of
--- `open_holds` for each charge.

--- @include lib/state_holds

-- The foot of each state with holds, by the number of the key. A foot is the fixed-size end of the
-- value: sums, times and numbers.
local feet = {}

-- Whether the value of a key was a list at the start of the script, by the number of the key.
local was_list = {}

local load_without_holds = load_state
load_state = function(k)
  if kinds[k] then return end
  local value, kind, blocked_until, foot, read_offenses = read_holds(KEYS[k])
  if value == nil then
    load_without_holds(k)
    was_list[k] = lists[k]
    return
  end
  values[k], kinds[k], blocks[k], lists[k], feet[k] = value or nil, kind, blocked_until, false, foot
  offenses[k] = read_offenses
end

local ends_at_without_holds = ends_at
ends_at = function(k)
  return feet[k] and feet[k].key_expires_at or ends_at_without_holds(k)
end

-- A state with holds is written at the very end of the script, like a string.
local set_without_holds = set_state
set_state = function(k, value, kind, blocked_until, expires_at, plan)
  local foot = feet[k]
  if not foot then return set_without_holds(k, value, kind, blocked_until, expires_at, plan) end
  values[k], kinds[k], blocks[k] = value, kind, blocked_until
  foot.is_changed, foot.state_ends = true, math.max(foot.state_ends or 0, expires_at)
end

-- While a state has holds, the state is kept even if nothing is charged in it.
local remove_without_holds = remove_state
remove_state = function(k)
  if not feet[k] then return remove_without_holds(k) end
  offenses[k] = nil
  set_state(k, string.char(NONE), NONE, 0, 0)
end

-- Stores in the foot the rule that wrote the state last, because lapsed holds are refunded by this
-- rule.
local function note_rule(k, rule, p2, p3, p4)
  local foot = feet[k]
  if foot then foot.rule, foot.p2, foot.p3, foot.p4 = rule, p2, p3, p4 end
end

local change_without_holds = change_state
change_state = function(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  local before = values[k]
  change_without_holds(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  if values[k] ~= before then note_rule(k, rule, p2, p3, p4) end
end

-- A denial is not an offense if only open attempts of a policy that counts failures cause it: the
-- charge would be admitted without them.
local penalize_without_holds = penalize
penalize = function(k, outcome, penalty, charges, place)
  local foot = feet[k]
  if outcome == DENIED and foot and foot.counts_failures and foot.unspent > 0 and values[k] then
    local _, rule, _, _, _, p1, p2, p3, p4 = parse_charge(charges, place)
    local function apply_rule(value, cost, op)
      return RULES[rule](value, value:byte(), cost, op, 0, nil, p1, p2, p3, p4, KEYS[k], false)
    end
    local _, _, _, _, _, after = apply_rule(values[k], foot.unspent, REFUND)
    if after == nil then after = values[k] end
    if apply_rule(after or string.char(NONE), costs[place], PEEK) then return end
  end
  penalize_without_holds(k, outcome, penalty, charges, place)
end

local commit_without_holds = commit_charges
commit_charges = function(count, charges, allowed)
  commit_without_holds(count, charges, allowed)
  for place = 1, count do
    local k, rule, _, _, _, _, p2, p3, p4 = parse_charge(charges, place)
    if allowed and afters[place] then note_rule(k, rule, p2, p3, p4) end
  end
end

local change_states_without_holds = change_states
change_states = function(op, count, argument, charges)
  for place = 1, op == RESET and count or 0 do
    local k = keys[place]
    local foot = feet[k]
    if foot and (foot.waiters > 0 or keeps_fence(foot)) then
      -- Keep the queue, and remove all other members.
      call('ZREMRANGEBYSCORE', KEYS[k], '-inf', '0')
      call('ZREMRANGEBYSCORE', KEYS[k], '1', '+inf')
      foot.member, foot.unspent, foot.open, foot.lapsed, foot.lapsed_amount = nil, 0, 0, 0, 0
      foot.refunded, foot.due, foot.key_expires_at, foot.state_ends = 0, MODULUS, 0, 0
    elseif foot then
      feet[k], feet_by_key[KEYS[k]] = nil, nil
    end
  end
  change_states_without_holds(op, count, argument, charges)
  for place = 1, op == REFUND and count or 0 do
    local foot = feet[keys[place]]
    if foot and foot.open > 0 and refunds[place] > 0 then
      foot.refunded, foot.refunded_at = math.min(foot.refunded + refunds[place], MODULUS), now
      foot.is_changed = true
    end
  end
end

-- Gives up a place in the queues of the charges.
local function leave_all(count, place_in_queue)
  for place = 1, count do
    local foot = feet[keys[place]]
    if foot then leave(KEYS[keys[place]], foot, place_in_queue) end
  end
end

-- Wakes the calls that wait for slots of the charges, unless this call waits for the slots too.
local function wake_all(count, charges)
  for place = 1, count do
    local k = keys[place]
    local foot = feet[k]
    if foot and foot.waiters > 0 and (outcomes[place] == ALLOWED or not foot.new_waiter) then
      local _, _, _, _, _, limit = parse_charge(charges, place)
      wake_waiters(KEYS[k], foot, values[k], limit)
    end
  end
end

--- @when hold
--- @include batch_with_holds.queue
--- @end
local decide_without_holds = decide
decide = function(op, count, argument, charges)
  local at, is_in_turn = #answer + 1, op == ACQUIRE_IN_TURN
  if is_in_turn then op, argument, own_place = ACQUIRE, 0, argument end
  decide_without_holds(op, count, argument, charges)
  if answer[at] ~= '\0' then return end
  if op == LEAVE then leave_all(count, argument) end
  answer[at] = string.char(WITH_HOLDS)
  -- The reply to a reservation does not contain the holds, because the place of a reservation in
  -- the queue must not depend on lapses of holds.
  local waits_for_lapses = (op == PEEK or op == ACQUIRE) and argument == 0 or op == ACQUIRE_UP_TO
  for place = 1, count do
    local k = keys[place]
    answer[#answer + 1] =
      open_holds(KEYS[k], feet[k], values[k], waits_for_lapses and outcomes[place] ~= ALLOWED)
  end
  --- @when hold
  if is_in_turn then answer[#answer + 1] = update_queues(count, charges) end
  --- @inline batch_with_holds.make
  --- @end
  if op == LEAVE or op == RESET or is_in_turn then wake_all(count, charges) end
end

--- @section check
--- @when hold
-- Refuse a hold if a state has the maximum number of open holds. A shadow never refuses a call.
for place = 1, request:byte(2) do
  local k, _, flags, cost = parse_charge(CALL_HEAD + 1, place)
  local foot, max = feet[k], max_open_holds(place)
  if foot and max > 0 and flags % LIST_UNIT == 0 and cost > 0 and foot.open >= max then
    return pack('<BBI4', TOO_MANY_HOLDS, place, foot.open)
  end
end
--- @end

--- @section queue
-- Returns the records of a log that is a list as one string. `value` is the last element of the
-- list.
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

-- Returns the foot of a state. If the state has no foot, returns a new foot, with which the state
-- is written as a sorted set.
local function foot_of(k)
  local foot = feet[k]
  if foot then return foot end
  foot = {
    refunded = 0, refunded_at = 0, unspent = 0, number = 0, open = 0, lapsed = 0, lapsed_amount = 0,
    waiters = 0, due = MODULUS, ends = 0, key_expires_at = 0, state_ends = ends_at(k),
    replaced_type = was_list[k] and 'list' or 'string',
  }
  if lists[k] then values[k], lists[k] = whole_log(KEYS[k], values[k]), false end
  changed[k], feet[k], feet_by_key[KEYS[k]] = nil, foot, foot
  return foot
end

-- Updates the queues after an acquire in turn, as core/src/engine/queue.rs does. If the acquire was
-- refused, returns its place (or 0 for none) and the number of places before it.
local function update_queues(count, charges)
  local slots, lacks_slots, has_place, can_wait = {}, false, own_place > 0, true
  for place = 1, count do
    local k, rule, flags, cost, _, limit = parse_charge(charges, place)
    local is_refused = outcomes[place] ~= ALLOWED
    if is_refused and not is_shadow(flags) and cost > limit then can_wait = false end
    if rule == CONCURRENT and flags == 0 and cost > 0 then
      slots[#slots + 1] = place
      lacks_slots = lacks_slots or is_refused
      local foot = feet[k]
      -- The queue must be updated in every state, so `leave` is called first.
      has_place = foot and leave(KEYS[k], foot, own_place) and has_place
    end
  end
  if held_and_spent then return '' end
  if not slots[1] or not can_wait or not (lacks_slots or has_place) then return pack('<I7I7', 0, 0) end
  local number, ahead, life = own_place, 0, parse('<I7', id, FINGERPRINT + 1)
  local place_ends = now + math.min(life / 2, MAX_LIFE_OF_PLACE)
  if not has_place then
    number = now
    for _, place in ipairs(slots) do
      local foot = feet[keys[place]]
      number = math.max(number, foot and foot.number + 1 or 1)
    end
  end
  for _, place in ipairs(slots) do
    local k, rule, _, _, _, _, p2, p3, p4 = parse_charge(charges, place)
    local foot = foot_of(k)
    if not foot.rule then note_rule(k, rule, p2, p3, p4) end
    values[k] = values[k] or string.char(NONE)
    ahead = math.max(ahead, foot.waiters > 0
      and call('ZCOUNT', KEYS[k], '(0', '(' .. place_score(number)) or 0)
    foot.new_place = number
    foot.new_waiter =
      pack('>I7', number) .. pack('<I7B', place_ends, outcomes[place] ~= ALLOWED and 1 or 0)
    foot.waiters, foot.number = foot.waiters + 1, math.max(foot.number, number)
    foot.ends, foot.is_changed = math.max(foot.ends, place_ends), true
  end
  return pack('<I7I7', number, ahead)
end

--- @section make
-- Takes lapsed slots away from their former holders, until these slots and the slots in use are at
-- most `limit`. The hold that expires first loses its slots first.
local function claim_slots(key, foot, value, limit)
  local count = parse('<I7', value, 2)
  while foot.lapsed > 0 and count + foot.lapsed_amount > limit do
    local first = call('ZREVRANGEBYSCORE', key, '(0', '-inf', 'WITHSCORES', 'LIMIT', '0', '1')
    if not first[1] then return end
    local members = call('ZRANGEBYSCORE', key, first[2], first[2], 'LIMIT', '0', '1')
    call('ZREM', key, members[1])
    forget_lapsed(foot, members[1])
  end
end

-- Record the new hold on each state that stores its holds. At this point, the reply
-- does not include the new hold. Add the number of each new hold to the reply, or 0 if there is
-- none.
local life = parse('<I7', id, FINGERPRINT + 1)
for place = 1, held_and_spent and count or 0 do
  local k, rule, flags, _, _, p1, p2, p3, p4 = parse_charge(charges, place)
  local number, is_held = 0, is_made(place, flags) and flags % LIST_UNIT < CHECK_ONLY and costs[place] > 0
  local max, counts_failures = max_open_holds(place)
  if is_held and max > 0 then
    local foot = foot_of(k)
    foot.counts_failures = counts_failures
    note_rule(k, rule, p2, p3, p4)
    foot.new_score = score(now + life / 2)
    number = math.max(now, foot.number + 1)
    foot.new_hold = pack('>I7', number) .. hash_id_key(id_key)
      .. pack('<I7I7I7I7', now, costs[place], 0, now + life)
    foot.number, foot.open, foot.is_changed = number, foot.open + 1, true
    foot.due, foot.ends = math.min(foot.due, now + life / 2), math.max(foot.ends, now + life)
    add_unspent(foot, costs[place])
    if rule == CONCURRENT then claim_slots(KEYS[k], foot, values[k], p1) end
  end
  answer[#answer + 1] = pack('<I7', number)
end

--- @section write
-- Write the states with holds. The code after this section writes the states without holds.
for k, foot in pairs(feet) do
  if foot.is_changed then
    if foot.replaced_type then
      -- SETRANGE writes an empty string into the key first, which changes nothing. If the server
      -- lacks memory, SETRANGE fails, so the script fails before it has removed the key.
      if foot.replaced_type == 'string' then call('SETRANGE', KEYS[k], '0', '') end
      call('UNLINK', KEYS[k])
    end
    write_holds(KEYS[k], foot, values[k], blocks[k], offenses[k], foot.state_ends or 0)
  end
end
