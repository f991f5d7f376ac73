-- Any number of calls, each of any number of charges by any rules, one call after the other.
--
-- KEYS: each key once. ARGV[1], for each call: what to do, number of charges, longest wait or length
-- of a block; then for each charge, no two of one key: number of the key, rule, whether it is a
-- shadow, cost, penalty, four numbers of the rule.
-- Answer: now; for each call 0 (or the place of the first charge whose key is not ours), and for each
-- charge: outcome, until when it is blocked, three numbers of the rule.
--> read.lua

local RULES = { fixed_window, sliding_log, sliding_counter, token_bucket, interval_bucket }
local request = ARGV[1]

-- By the number of the key: what lies there now, and (if it changed and still has to be written)
-- from when on it does not matter.
local values, kinds, blocks, lists, changed = {}, {}, {}, {}, {}

local function read_all()
  local found, absent = call('MGET', unpack(KEYS)), {}
  for k = 1, #KEYS do
    if found[k] then
      values[k], kinds[k], blocks[k] = understand(found[k])
    else
      kinds[k], blocks[k], absent[#absent + 1] = NONE, 0, KEYS[k]
    end
  end
  -- MGET takes for absent what is no string.
  if not absent[1] or call('EXISTS', unpack(absent)) == 0 then return end
  for k = 1, #KEYS do
    if not found[k] then
      local last = redis.pcall('LINDEX', KEYS[k], -1)
      values[k], kinds[k], blocks[k], lists[k] = read_on(KEYS[k], last, true)
    end
  end
end

-- A value with the time until which it blocks, if it does.
local function blocking(value, blocked_until)
  if blocked_until == 0 then return value end
  return string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
end

-- When what lies under a key was to go, as it stands.
local function ends_at(k)
  return changed[k] or values[k] and call('PTTL', KEYS[k]) * 1000 + now or 0
end

-- Strings are written at the very end, lists at once: a log may read its chunks again.
local function put(k, value, kind, blocked_until, time, plan)
  values[k], kinds[k], blocks[k] = value, kind, blocked_until
  if blocked_until > time then time = blocked_until end
  if plan then
    -- What was to be removed at the end is still there.
    plan.replaces = plan.replaces or changed[k] ~= nil
    write_list(KEYS[k], blocking(value, blocked_until), plan, lists[k], life_until(time))
    lists[k], changed[k] = true, nil
  else
    lists[k], changed[k] = false, time
  end
end

local function remove(k)
  values[k], kinds[k], blocks[k], lists[k], changed[k] = nil, NONE, 0, false, 0
end

-- Blocks until a time, or (0) lifts the block.
local function block(k, blocked_until)
  local kind, time = kinds[k], ends_at(k)
  if kind == NONE and blocked_until == 0 then return remove(k) end
  local plan = lists[k] and { from = 0, to = -1 }
  put(k, values[k] or string.char(NONE), kind, blocked_until, time, plan)
end

-- Gives back, to what is there.
local function refund(k, rule, cost, p1, p2, p3, p4)
  local _, _, _, _, after, time, plan =
    RULES[rule](values[k], kinds[k], cost, REFUND, 0, p1, p2, p3, p4, KEYS[k])
  local blocked_until = blocks[k] > now and blocks[k] or 0
  if after then
    put(k, after, after:byte(), blocked_until, time, plan)
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
local keys, outcomes, firsts, seconds, thirds = {}, {}, {}, {}, {}
local afters, times, plans = {}, {}, {}

-- Asks for all charges: the place of the first whose key is not ours, else whether all pass.
local function weigh(does, count, max_wait, charges)
  local allowed = true
  for place = 1, count do
    local k, rule, shadow, cost, _, p1, p2, p3, p4 = charge(charges, place)
    if kinds[k] == FOREIGN then return place end
    local is_blocked = now < blocks[k]
    local admits
    admits, firsts[place], seconds[place], thirds[place], afters[place], times[place], plans[place] =
      RULES[rule](values[k], kinds[k], cost, (is_blocked or cost == 0) and PEEK or does, max_wait,
        p1, p2, p3, p4, KEYS[k])
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
      put(k, after, after:byte(), 0, times[place], plans[place])
    elseif after then
      -- It is not taken after all.
      local _, rule, _, cost, _, p1, p2, p3, p4 = charge(charges, place)
      _, firsts[place], seconds[place], thirds[place] =
        RULES[rule](values[k], kinds[k], cost, PEEK, 0, p1, p2, p3, p4, KEYS[k])
    end
  end
end

-- Refunds, resets or blocks; what is left to say is what a peek of no cost says.
local function maintain(does, count, span, charges)
  for place = 1, count do
    local k, rule, _, cost, _, p1, p2, p3, p4 = charge(charges, place)
    if does == BLOCK then
      if span > 0 or values[k] then block(k, span > 0 and now + span or 0) end
    elseif values[k] and does == RESET then
      remove(k)
    elseif values[k] and cost > 0 then
      refund(k, rule, cost, p1, p2, p3, p4)
    end
    local admits
    admits, firsts[place], seconds[place], thirds[place] =
      RULES[rule](values[k], kinds[k], 0, PEEK, 0, p1, p2, p3, p4, KEYS[k])
    outcomes[place] = now < blocks[k] and BLOCKED or admits and ALLOWED or DENIED
  end
end

read_all()
local answer, at = { pack('<I7', now) }, 1
while at <= #request do
  local does, count, span = parse('<BBI7', request, at)
  local charges = at + CALL_HEAD
  at = charges + count * CHARGE_SIZE
  local is_asked = does == ACQUIRE or does == PEEK
  local foreign, allowed = weigh(is_asked and does or PEEK, count, span, charges)
  answer[#answer + 1] = string.char(foreign)
  if foreign == 0 then
    if does == ACQUIRE then
      settle(count, charges, allowed)
    elseif not is_asked then
      maintain(does, count, span, charges)
    end
    for place = 1, count do
      answer[#answer + 1] = pack('<BI7I7I7I7', outcomes[place], blocks[keys[place]], firsts[place],
        seconds[place], thirds[place])
    end
  end
end

for k, time in pairs(changed) do
  if values[k] then
    call('PSETEX', KEYS[k], life_until(time), blocking(values[k], blocks[k]))
  else
    call('UNLINK', KEYS[k])
  end
end
return table.concat(answer)
