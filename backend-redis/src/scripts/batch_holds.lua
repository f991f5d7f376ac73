-- What batch.lua does where states have holds: the functions above, for states with holds.
--
-- Reply to a call: as of batch.lua; but WITH_HOLDS instead of 0, unless it took the fast path, and behind the charges
-- for each what state_holds.lua says.
--> state_holds.lua

-- By the number of the key: the holds on the state, if there are any.
local holds = {}

local put_state = put
put = function(k, value, kind, blocked_until, expires_at, plan)
  if holds[k] then expires_at = math.max(expires_at, holds[k].ends) end
  put_state(k, value, kind, blocked_until, expires_at, plan)
  if plan and holds[k] then
    call('LSET', KEYS[k], '-1', holding(blocking(value, blocked_until), holds[k]))
  end
end

-- Writes a state again.
local function put_again(k)
  put(k, values[k], kinds[k], blocks[k], ends_at(k), lists[k] and { from = 0, to = -1 })
end

local load_state = load
load = function(k)
  if kinds[k] then return end
  holds_in_value = nil
  load_state(k)
  if not holds_in_value or kinds[k] == FOREIGN then return end
  holds[k] = holds_in_value
  values[k], kinds[k], lists[k] = lapse(holds[k], values[k], kinds[k], KEYS[k], lists[k])
  if holds[k].is_written then put_again(k) end
end

-- A state in which nothing is taken stays while there are holds on it.
local remove_state = remove
remove = function(k)
  if holds[k] and holds[k].list ~= '' then
    put(k, string.char(NONE), NONE, 0, 0)
  else
    remove_state(k)
  end
end

-- What lapses is given back by the rule that wrote the state last.
local function written_by(k, rule, p2, p3, p4)
  local its = holds[k]
  if its then its.rule, its.p2, its.p3, its.p4 = rule, p2, p3, p4 end
end

local change_state = change
change = function(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  local before = values[k]
  change_state(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  if values[k] ~= before then
    written_by(k, rule, p2, p3, p4)
  elseif holds[k] and holds[k].has_lapsed then
    put_again(k)
  end
end

local block_state = block
block = function(k, blocked_until)
  if not holds[k] or blocks[k] ~= blocked_until then block_state(k, blocked_until) end
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
  for place = 1, op == RESET and count or 0 do holds[keys[place]] = nil end
  maintain_states(op, count, argument, charges)
end

local decide_call = decide
decide = function(op, count, argument, charges)
  local at = #answer + 1
  decide_call(op, count, argument, charges)
  if answer[at] ~= '\0' then return end
  answer[at] = string.char(WITH_HOLDS)
  for place = 1, count do
    local k = keys[place]
    answer[#answer + 1] = open_holds(holds[k], values[k], lists[k])
  end
  --> hold_on_states.lua
end
--> ITS_LOADS
