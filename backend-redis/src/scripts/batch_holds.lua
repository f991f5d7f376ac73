-- What batch.lua does where states have holds: the functions above, for states with holds.
--
-- Reply to a call: as of batch.lua; but WITH_HOLDS instead of 0, unless it took the fast path, and
-- after the charges for each charge the part that state_holds.lua describes.
--> state_holds.lua

-- By the number of the key: the holds on the state, if there are any.
local holds = {}

-- Whether the key of a number is a string.
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

-- A state with holds is written at the very end, as strings are.
local put_state = put
put = function(k, value, kind, blocked_until, expires_at, plan)
  local entry = holds[k]
  if not entry then return put_state(k, value, kind, blocked_until, expires_at, plan) end
  values[k], kinds[k], blocks[k] = value, kind, blocked_until
  entry.is_changed, entry.matters = true, math.max(entry.matters or 0, expires_at)
end

-- A state in which nothing is taken stays while there are holds on it.
local remove_state = remove
remove = function(k)
  if holds[k] then put(k, string.char(NONE), NONE, 0, 0) else remove_state(k) end
end

-- Lapsed holds are refunded by the rule that wrote the state last.
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
    if entry and entry.open > 0 and refunds[place] > 0 then
      entry.refunded, entry.refunded_at = math.min(entry.refunded + refunds[place], MODULUS), now
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
  -- The place of a reservation must not depend on what lapses.
  local counts_on_lapses = (op == PEEK or op == ACQUIRE) and argument == 0 or op == ACQUIRE_UP_TO
  for place = 1, count do
    local k = keys[place]
    answer[#answer + 1] =
      open_holds(KEYS[k], holds[k], values[k], counts_on_lapses and outcomes[place] ~= ALLOWED)
  end
  --> hold_on_states.lua
end
--> ITS_LOADS
--> hold_maxima.lua
