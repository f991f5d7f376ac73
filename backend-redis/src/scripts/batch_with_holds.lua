--- The functions of batch.lua for states with holds (see lib/state_holds.lua).
---
--- Reply to a call: as in batch.lua. But unless the call took the fast path, it begins with
--- WITH_HOLDS instead of 0, and after the charges it has the result of `open_holds` for each charge.
--- @include lib/state_holds

-- By the number of the key: the holds on the state, if there are any.
local holds = {}

-- By the number of the key: whether the key is a string.
local is_string = {}

local load_state = load
load = function(k)
  if kinds[k] then return end
  local value, kind, blocked_until, entry = read_holds(KEYS[k])
  if value == nil then
    load_state(k)
    is_string[k] = not lists[k]
    return
  end
  values[k], kinds[k], blocks[k], lists[k], holds[k] = value or nil, kind, blocked_until, false, entry
end

local ends_at_of_state = ends_at
ends_at = function(k)
  return holds[k] and holds[k].lives or ends_at_of_state(k)
end

-- A state with holds is written at the very end, like a string.
local put_state = put
put = function(k, value, kind, blocked_until, expires_at, plan)
  local entry = holds[k]
  if not entry then return put_state(k, value, kind, blocked_until, expires_at, plan) end
  values[k], kinds[k], blocks[k] = value, kind, blocked_until
  entry.is_changed, entry.matters = true, math.max(entry.matters or 0, expires_at)
end

-- A state in which nothing is charged stays while there are holds on it.
local remove_state = remove
remove = function(k)
  if holds[k] then put(k, string.char(NONE), NONE, 0, 0) else remove_state(k) end
end

-- Notes the rule that wrote the state last, because it will refund lapsed holds.
local function written_by(k, rule, p2, p3, p4)
  local entry = holds[k]
  if entry then entry.rule, entry.p2, entry.p3, entry.p4 = rule, p2, p3, p4 end
end

local change_state = change
change = function(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  local before = values[k]
  change_state(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  if values[k] ~= before then written_by(k, rule, p2, p3, p4) end
end

local commit_states = commit
commit = function(count, charges, allowed)
  commit_states(count, charges, allowed)
  for place = 1, count do
    local k, rule, _, _, _, _, p2, p3, p4 = charge(charges, place)
    if allowed and afters[place] then written_by(k, rule, p2, p3, p4) end
  end
end

local maintain_states = maintain
maintain = function(op, count, argument, charges)
  for place = 1, op == RESET and count or 0 do
    local k = keys[place]
    if holds[k] then holds[k], holds_of[KEYS[k]] = nil, nil end
  end
  maintain_states(op, count, argument, charges)
  for place = 1, op == REFUND and count or 0 do
    local entry = holds[keys[place]]
    if entry and entry.open > 0 and amounts[place] > 0 then
      entry.refunded, entry.refunded_at = math.min(entry.refunded + amounts[place], MODULUS), now
      entry.is_changed = true
    end
  end
end

local decide_call = decide
decide = function(op, count, argument, charges)
  local at = #answer + 1
  decide_call(op, count, argument, charges)
  if answer[at] ~= '\0' then return end
  answer[at] = string.char(WITH_HOLDS)
  -- The place of a reservation in the queue must not depend on lapses.
  local counts_on_lapses = (op == PEEK or op == ACQUIRE) and argument == 0 or op == ACQUIRE_UP_TO
  for place = 1, count do
    local k = keys[place]
    answer[#answer + 1] =
      open_holds(KEYS[k], holds[k], values[k], counts_on_lapses and outcomes[place] ~= ALLOWED)
  end
  --- @when hold
  --- @inline batch_with_holds.make
  --- @end
end
--- @when id hold
-- Only the general path knows `is_done` and `hold`, and it handles every key that is loaded.
for k = 1, #KEYS do load(k) end
--- @end
--- @when hold
-- A state with the maximum number of open holds gets no further hold.
for place = 1, request:byte(2) do
  local k, _, flags, cost = charge(CALL_HEAD + 1, place)
  local entry, max = holds[k], max_open_of(place)
  if entry and max > 0 and flags < CHECK_ONLY and cost > 0 and entry.open >= max then
    return pack('<BBI4', TOO_MANY_HOLDS, place, entry.open)
  end
end
--- @end

--- @section make
-- Returns a log that is a list as one string. `value` is the last element of the list.
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

-- Records a hold that was made on each state that will refund it when it lapses. The reply, which is
-- complete by now, does not include the hold.
local life = parse('<I7', id, FINGERPRINT + 1)
for place = 1, hold and count or 0 do
  local k, rule, flags, _, _, _, p2, p3, p4 = charge(charges, place)
  local is_held = outcomes[place] == ALLOWED and flags < CHECK_ONLY and costs[place] > 0
  if is_held and max_open_of(place) > 0 then
    local entry = holds[k]
    if not entry then
      entry = {
        refunded = 0, refunded_at = 0, unspent = 0, number = 0, open = 0, lapsed = 0, due = MODULUS,
        ends = 0, lives = 0, matters = ends_at(k)
      }
      if lists[k] then
        entry.replaces, values[k], lists[k] = 'list', whole_log(KEYS[k], values[k]), false
      elseif is_string[k] then
        entry.replaces = 'string'
      end
      changed[k], holds[k], holds_of[KEYS[k]] = nil, entry, entry
    end
    written_by(k, rule, p2, p3, p4)
    entry.made_score = score(now + life / 2)
    entry.made = pack('>I4', entry.number) .. hold_key_of(id_key)
      .. pack('<I7I7I7I7', now, costs[place], 0, now + life)
    entry.number, entry.open, entry.is_changed =
      (entry.number + 1) % 0x100000000, entry.open + 1, true
    entry.due, entry.ends = math.min(entry.due, now + life / 2), math.max(entry.ends, now + life)
    add_unspent(entry, costs[place])
  end
end

--- @section write
-- States with holds. Strings are written below.
for k, entry in pairs(holds) do
  if entry.is_changed then
    if entry.replaces then
      -- Writing nothing fails before anything is written if the server lacks memory.
      if entry.replaces == 'string' then call('SETRANGE', KEYS[k], '0', '') end
      call('UNLINK', KEYS[k])
    end
    write_holds(KEYS[k], entry, values[k], blocks[k], entry.matters or 0)
  end
end
