-- Any number of calls, each of any number of charges by any rules, one call after the other.
--
-- KEYS: each key once. ARGV[1], for each call: what to do, number of charges, longest wait, length of a
-- block or time of what is undone; then for each charge, no two of one key: number of the key, rule, whether it is a
-- shadow, cost, penalty, four numbers of the rule.
-- Answer: VERDICTS, now; for each call the value that was written, if that says all; else 0 (or the
-- place of the first charge whose key is not ours), and for each charge: outcome, until when it is
-- blocked, three numbers of the rule, when the state ends.
--> rules.lua
--> read.lua

local request = ARGV[1]
local answer = { pack('<BI7', VERDICTS, now) }

-- By the number of the key: the strings that were there before, or that the usual way has written.
local found = call('MGET', unpack(KEYS))
-- MGET takes for absent what is no string. Whether nothing else is there:
local all_found = true
do
  local absent = {}
  for k = 1, #KEYS do
    if not found[k] then absent[#absent + 1] = KEYS[k] end
  end
  if absent[1] then all_found = call('EXISTS', unpack(absent)) == 0 end
end

-- By the number of the key, for those that went another way than the usual one: what lies there now,
-- and (if it changed and still has to be written) from when on it does not matter.
local values, kinds, blocks, lists, changed = {}, {}, {}, {}, {}

local function load(k)
  if kinds[k] then return end
  if found[k] then
    values[k], kinds[k], blocks[k] = understand(found[k])
  elseif all_found then
    kinds[k], blocks[k] = NONE, 0
  else
    values[k], kinds[k], blocks[k], lists[k] = read(KEYS[k])
  end
end

-- A value with the time until which it blocks, if it does.
local function blocking(value, blocked_until)
  if blocked_until == 0 then return value end
  return string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
end

local function life_until(ends)
  local life
  --> life.lua
  return life
end

-- When what lies under a key was to go, as it stands.
local function ends_at(k)
  return changed[k] or values[k] and call('PTTL', KEYS[k]) * 1000 + now or 0
end

-- Strings are written at the very end, lists at once: a log may read its elements again.
local function put(k, value, kind, blocked_until, lives_until, plan)
  if blocked_until > lives_until then lives_until = blocked_until end
  if plan then
    -- What was to be removed at the end is still there.
    local is_there = values[k] or changed[k]
    write_list(KEYS[k], is_there, lists[k], blocking(value, blocked_until), lives_until, plan)
    lists[k], changed[k] = true, nil
  else
    lists[k], changed[k] = false, lives_until
  end
  values[k], kinds[k], blocks[k] = value, kind, blocked_until
end

local function remove(k)
  values[k], kinds[k], blocks[k], lists[k], changed[k] = nil, NONE, 0, false, 0
end

-- Blocks until a time, or (0) lifts the block.
local function block(k, blocked_until)
  local kind, ends = kinds[k], ends_at(k)
  if kind == NONE and blocked_until == 0 then return remove(k) end
  local plan = lists[k] and { from = 0, to = -1 }
  put(k, values[k] or string.char(NONE), kind, blocked_until, ends, plan)
end

-- Refunds, or undoes what was taken at a time.
local function give_back(does, k, rule, cost, taken_at, p1, p2, p3, p4)
  local _, _, _, _, _, after, lives_until, plan =
    RULES[rule](values[k], kinds[k], cost, does, taken_at, p1, p2, p3, p4, KEYS[k], lists[k])
  local blocked_until = blocks[k] > now and blocks[k] or 0
  if after then
    put(k, after, after:byte(), blocked_until, lives_until, plan)
  elseif after == false and blocked_until > 0 then
    put(k, string.char(NONE), NONE, blocked_until, 0)
  elseif after == false then
    remove(k)
  end
end

-- The charge at a place of the call whose charges begin at `charges`.
local function charge(charges, place)
  return parse('<I2BBI7I7I7I7I7I7', request, charges + (place - 1) * CHARGE_SIZE)
end

-- By place, for the call in hand.
local keys, outcomes, firsts, seconds, thirds, fourths = {}, {}, {}, {}, {}, {}
local afters, lives, plans = {}, {}, {}

-- Asks for all charges: the place of the first whose key is not ours, else whether all pass.
local function weigh(does, count, max_wait, charges)
  local allowed = true
  for place = 1, count do
    local k, rule, shadow, cost, _, p1, p2, p3, p4 = charge(charges, place)
    load(k)
    if kinds[k] == FOREIGN then return place end
    local is_blocked = now < blocks[k]
    local admits
    admits, firsts[place], seconds[place], thirds[place], fourths[place], afters[place], lives[place],
      plans[place] =
      RULES[rule](values[k], kinds[k], cost, (is_blocked or cost == 0) and PEEK or does, max_wait,
        p1, p2, p3, p4, KEYS[k], lists[k])
    if admits == nil then return place end
    keys[place], outcomes[place] = k, is_blocked and BLOCKED or admits and ALLOWED or DENIED
    if outcomes[place] ~= ALLOWED and shadow == 0 then allowed = false end
  end
  return 0, allowed
end

-- Writes what comes of charges that were weighed: all that are admitted, or no more than penalties.
local function settle(count, charges, allowed)
  for place = 1, count do
    local k, after = keys[place], afters[place]
    if outcomes[place] == DENIED then
      local _, _, _, cost, penalty, p1 = charge(charges, place)
      -- A cost that could never pass does not shut out.
      if penalty > 0 and cost > 0 and cost <= p1 then block(k, now + penalty) end
    elseif allowed and after then
      put(k, after, after:byte(), 0, lives[place], plans[place])
    elseif after then
      -- It is not taken after all.
      local _, rule, _, cost, _, p1, p2, p3, p4 = charge(charges, place)
      _, firsts[place], seconds[place], thirds[place], fourths[place] =
        RULES[rule](values[k], kinds[k], cost, PEEK, 0, p1, p2, p3, p4, KEYS[k], lists[k])
    end
  end
end

-- Refunds, undoes, resets or blocks; what is left to say is what a peek of no cost says.
local function maintain(does, count, span, charges)
  for place = 1, count do
    local k, rule, _, cost, _, p1, p2, p3, p4 = charge(charges, place)
    if does == BLOCK then
      if span > 0 or values[k] then block(k, span > 0 and now + span or 0) end
    elseif values[k] and does == RESET then
      remove(k)
    elseif values[k] and cost > 0 and (does == REFUND or cost <= p1) then
      -- What is above the limit was never taken: there is nothing to undo.
      give_back(does, k, rule, cost, span, p1, p2, p3, p4)
    end
    local admits
    admits, firsts[place], seconds[place], thirds[place], fourths[place] =
      RULES[rule](values[k], kinds[k], 0, PEEK, 0, p1, p2, p3, p4, KEYS[k], lists[k])
    outcomes[place] = now < blocks[k] and BLOCKED or admits and ALLOWED or DENIED
  end
end

-- Any call.
local function decide(does, count, span, charges)
  local is_asked = does == ACQUIRE or does == PEEK
  local foreign, allowed = weigh(is_asked and does or PEEK, count, span, charges)
  answer[#answer + 1] = string.char(foreign)
  if foreign > 0 then return end
  if does == ACQUIRE then
    settle(count, charges, allowed)
  elseif not is_asked then
    maintain(does, count, span, charges)
  end
  for place = 1, count do
    answer[#answer + 1] = pack('<BI7I7I7I7I7', outcomes[place], blocks[keys[place]], firsts[place],
      seconds[place], thirds[place], fourths[place])
  end
end

local at = 1
while at <= #request do
  local does, count, span, k, rule, _, cost, penalty, p1, p2, p3, p4 =
    parse('<BBI7I2BBI7I7I7I7I7I7', request, at)
  local charges = at + CALL_HEAD
  at = charges + count * CHARGE_SIZE

  -- The usual way: one charge, no wait, and under the key a string of its own kind, or nothing.
  local value, kind = found[k], KINDS[rule] or p4
  if not value then value, kind = nil, NONE end
  if does == ACQUIRE and count == 1 and span == 0 and cost > 0 and rule ~= SLIDING_LOG
    and not kinds[k]
    and (value and #value == SIZES[rule] and value:byte() == kind or all_found and not value) then
    local _, a, b, c, d, after, lives_until, _, kept =
      RULES[rule](value, kind, cost, ACQUIRE, 0, p1, p2, p3, p4)
    if after then
      local key, blocked_until = KEYS[k], 0
      --> write_string.lua
      found[k], answer[#answer + 1] = after, after
    elseif penalty == 0 then
      answer[#answer + 1] = pack('<BBI7I7I7I7I7', 0, DENIED, 0, a, b, c, d)
    else
      decide(does, count, span, charges)
    end
  else
    decide(does, count, span, charges)
  end
end

for k, ends in pairs(changed) do
  if values[k] then
    call('PSETEX', KEYS[k], life_until(ends), blocking(values[k], blocks[k]))
  else
    call('UNLINK', KEYS[k])
  end
end
return table.concat(answer)
