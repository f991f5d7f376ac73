-- Decides any number of calls, one after the other, each with any number of charges by any rules.
--
-- KEYS: each key once. ARGV[1], for each call: operation, number of charges, argument (the maximum
-- wait of an acquire, the minimum of an acquire of up to the costs, the length of a block, the time
-- of the take that is undone); then for each charge: number of the key, rule, flags, cost, penalty
-- (of a reset and a refund: number of the key of the epoch, see hold_epochs.lua), four numbers of
-- the policy. No two charges of a call have one key.
--
-- Reply: VERDICTS, now, and the reply to each call. If the written value says all, it is the reply.
-- Otherwise the reply to a call consists of:
--   0, or the place of the first charge whose key has a foreign value
--   for an acquire of up to the costs: the amount that is charged to each (0 if it is denied)
--   for each charge: outcome, time until which the key is blocked, three numbers of the rule, time
--   at which the state ends
--   for each charge of a refund, an undo and a charge beyond the limit: the refunded or recorded
--   whole part of the cost
--> rules.lua
--> read.lua
--> levels.lua

local request = ARGV[1]
local answer = { pack('<BI7', VERDICTS, now) }

-- By the number of the key: the strings that were there before, or that the fast path has written.
--> read_all.lua

-- By the number of the key, for keys that did not take the fast path: the value now, its kind, its block,
-- whether it is a list; and, if it changed and still has to be written, until when it must live.
local values, kinds, blocks, lists, changed = {}, {}, {}, {}, {}

local function load(k)
  if kinds[k] then return end
  if found[k] then
    values[k], kinds[k], blocks[k] = decode(found[k])
  elseif others_absent then
    kinds[k], blocks[k] = NONE, 0
  else
    values[k], kinds[k], blocks[k], lists[k] = read(KEYS[k])
  end
end

--> blocking.lua

local function ttl_until(ends)
  local ttl
  --> ttl.lua
  return ttl
end

-- Time at which the key expires as it stands.
local function ends_at(k)
  return changed[k] or values[k] and call('PTTL', KEYS[k]) * 1000 + now or 0
end

-- Strings are written at the very end, lists at once, as a later call may read their elements.
local function put(k, value, kind, blocked_until, expires_at, plan)
  if blocked_until > expires_at then expires_at = blocked_until end
  if plan then
    -- A key that is to be removed at the end is still there.
    local is_there = values[k] or changed[k]
    write_list(KEYS[k], is_there, lists[k], blocking(value, blocked_until), expires_at, plan)
    lists[k], changed[k] = true, nil
  else
    lists[k], changed[k] = false, expires_at
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

-- Refunds, undoes a take at a time, or takes. A block stays.
local function change(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  local _, _, _, _, _, after, expires_at, plan =
    RULES[rule](values[k], kinds[k], cost, op, op == UNDO and cost or 0, taken_at, p1, p2, p3, p4, KEYS[k],
      lists[k], max_records)
  local blocked_until = blocks[k] > now and blocks[k] or 0
  if after then
    put(k, after, after:byte(), blocked_until, expires_at, plan)
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

-- Whether a charge with these flags is of a shadow.
local function is_shadow(flags)
  return flags % CHECK_ONLY == SHADOW
end

-- By place, for the current call.
local keys, outcomes, firsts, seconds, thirds, fourths = {}, {}, {}, {}, {}, {}
local costs, afters, expiries, plans, amounts, refunds = {}, {}, {}, {}, {}, {}

-- Evaluates all charges, those that take at `amount` instead of their cost if it is given. Returns the place of
-- the first one whose value is not ours, or 0 and whether all are admitted.
local function evaluate(op, count, max_wait, charges, amount)
  local allowed = true
  for place = 1, count do
    local k, rule, flags, cost, _, p1, p2, p3, p4 = charge(charges, place)
    load(k)
    if kinds[k] == FOREIGN then return place end
    local takes = flags < CHECK_ONLY
    if takes and amount then cost = amount end
    costs[place] = cost
    local is_blocked = now < blocks[k]
    local admits
    admits, firsts[place], seconds[place], thirds[place], fourths[place], afters[place], expiries[place],
      plans[place] =
      RULES[rule](values[k], kinds[k], cost, (is_blocked or cost == 0 or not takes) and PEEK or op, max_wait,
        nil, p1, p2, p3, p4, KEYS[k], lists[k])
    if admits == nil then return place end
    keys[place], outcomes[place] = k, is_blocked and BLOCKED or admits and ALLOWED or DENIED
    if outcomes[place] ~= ALLOWED and not is_shadow(flags) then allowed = false end
  end
  return 0, allowed
end

-- Writes evaluated charges: all of them if they are admitted, else only penalties.
local function commit(count, charges, allowed)
  for place = 1, count do
    local k, after, cost = keys[place], afters[place], costs[place]
    if outcomes[place] == DENIED then
      local _, _, _, _, penalty, p1 = charge(charges, place)
      -- A cost above the limit is not penalised.
      if penalty > 0 and cost > 0 and cost <= p1 then block(k, now + penalty) end
    elseif allowed and after then
      put(k, after, after:byte(), 0, expiries[place], plans[place])
    elseif after then
      -- Not taken, as another charge is denied: the numbers are those of a peek.
      local _, rule, _, _, _, p1, p2, p3, p4 = charge(charges, place)
      _, firsts[place], seconds[place], thirds[place], fourths[place] =
        RULES[rule](values[k], kinds[k], cost, PEEK, 0, nil, p1, p2, p3, p4, KEYS[k], lists[k])
    end
  end
end

-- The amount that an acquire of up to the costs takes of each charge, after these were evaluated as peeks: the
-- maximum that all policies in force admit. `nil` if that is less than `min`.
local function common_amount(count, min, charges)
  local amount
  for place = 1, count do
    local _, rule, flags, cost, _, p1, p2, p3 = charge(charges, place)
    if flags < CHECK_ONLY then
      if not is_shadow(flags) then
        if outcomes[place] == BLOCKED then return nil end
        cost = math.min(cost,
          remaining(rule, firsts[place], seconds[place], thirds[place], p1, p2, p3))
      end
      amount = math.min(amount or cost, cost)
    elseif outcomes[place] ~= ALLOWED and not is_shadow(flags) then
      return nil
    end
  end
  return amount >= min and amount or nil
end

-- Records a charge beyond the limit, as much as the state can hold: as an acquire of so much, without a limit.
local function record(place, k, rule, cost, p1, p2, p3, p4)
  cost = math.min(cost, room(rule, firsts[place], seconds[place], thirds[place], p2, p3, p4))
  local max = max_records(rule, p1, p2, p3)
  if cost > 0 then change(ACQUIRE, k, rule, cost, nil, math.huge, p2, p3, p4, max) end
end

-- Records a refund in the epoch of the holds on a state, as it may have refunded one of them.
local function note_refund(epoch_key, amount)
  local value = redis.pcall('GET', epoch_key)
  if type(value) ~= 'string' or #value ~= EPOCH_SIZE then return end
  amount = math.min(parse('<I7', value, EPOCH_NUMBER + 9) + amount, MODULUS)
  call('SET', epoch_key, value:sub(1, EPOCH_NUMBER + 8) .. pack('<I7I7', amount, now), 'KEEPTTL')
end

-- Refunds, undoes, records charges beyond the limit, resets or blocks. The reply is that of a peek of no cost.
local function maintain(op, count, argument, charges)
  for place = 1, count do
    local k, rule, _, cost, epoch, p1, p2, p3, p4 = charge(charges, place)
    local before, unit = held(rule, firsts[place], seconds[place], thirds[place], p2)
    if op == BLOCK then
      if argument > 0 or values[k] then block(k, argument > 0 and now + argument or 0) end
    elseif op == BLOCK_AT_LEAST then
      if argument > 0 and blocks[k] < now + argument then block(k, now + argument) end
    elseif op == RESET then
      if values[k] then remove(k) end
      call('UNLINK', KEYS[epoch])
    elseif op == CHARGE then
      record(place, k, rule, cost, p1, p2, p3, p4)
    elseif values[k] and cost > 0 and (op == REFUND or cost <= p1) then
      -- A cost above the limit was never taken: there is nothing to undo.
      change(op, k, rule, cost, argument, p1, p2, p3, p4)
    end
    local admits
    admits, firsts[place], seconds[place], thirds[place], fourths[place] =
      RULES[rule](values[k], kinds[k], 0, PEEK, 0, nil, p1, p2, p3, p4, KEYS[k], lists[k])
    outcomes[place] = now < blocks[k] and BLOCKED or admits and ALLOWED or DENIED
    local changed_by = math.abs(held(rule, firsts[place], seconds[place], thirds[place], p2) - before)
    amounts[place] = (changed_by - changed_by % unit) / unit
    if op == REFUND then
      -- A refund of all the debt includes a part of a token, which the amount does not show.
      local has_part = rule == TOKEN_BUCKET and amounts[place] < cost
      refunds[place] = amounts[place] + (has_part and 1 or 0)
      if refunds[place] > 0 then note_refund(KEYS[epoch], refunds[place]) end
    end
  end
end

-- Decides one call.
local function decide(op, count, argument, charges)
  local is_check = op == ACQUIRE or op == PEEK
  local foreign, allowed =
    evaluate(is_check and op or PEEK, count, is_check and argument or 0, charges)
  answer[#answer + 1] = string.char(foreign)
  if foreign > 0 then return end
  if op == ACQUIRE_UP_TO then
    -- If there is less than the minimum, this is an acquire of that, which is denied.
    local amount = common_amount(count, argument, charges)
    foreign, allowed = evaluate(ACQUIRE, count, 0, charges, amount or argument)
    answer[#answer + 1] = pack('<I7', allowed and amount or 0)
  end
  if op == ACQUIRE or op == ACQUIRE_UP_TO then
    commit(count, charges, allowed)
  elseif not is_check then
    maintain(op, count, argument, charges)
  end
  --> ITS_OUTCOME
  local has_amounts = op == REFUND or op == UNDO or op == CHARGE
  for place = 1, count do
    answer[#answer + 1] = pack('<BI7I7I7I7I7', outcomes[place], blocks[keys[place]], firsts[place],
      seconds[place], thirds[place], fourths[place])
    if has_amounts then answer[#answer + 1] = pack('<I7', amounts[place]) end
  end
end

--> batch_holds.lua
local at = 1
while at <= #request do
  local op, count, argument, k, rule, flags, cost, penalty, p1, p2, p3, p4 =
    parse('<BBI7I2BBI7I7I7I7I7I7', request, at)
  local charges = at + CALL_HEAD
  at = charges + count * CHARGE_SIZE

  -- Fast path: acquires one charge without a wait; the key is absent, or a string of the rule's own kind.
  local value, kind = found[k], KINDS[rule] or p4
  if not value then value, kind = nil, NONE end
  if op == ACQUIRE and count == 1 and argument == 0 and cost > 0 and flags < CHECK_ONLY
    and rule ~= SLIDING_LOG and not kinds[k]
    and (value and #value == SIZES[rule] and value:byte() == kind or others_absent and not value) then
    local admits, a, b, c, d, after, expires_at, _, keeps_ttl =
      RULES[rule](value, kind, cost, ACQUIRE, 0, nil, p1, p2, p3, p4)
    if after then
      local key, blocked_until = KEYS[k], 0
      --> write_string.lua
      found[k], answer[#answer + 1] = after, after
    elseif admits ~= nil and penalty == 0 then
      answer[#answer + 1] = pack('<BBI7I7I7I7I7', 0, DENIED, 0, a, b, c, d)
    else
      decide(op, count, argument, charges)
    end
  else
    decide(op, count, argument, charges)
  end
end

--> batch_holds_write.lua
for k, ends in pairs(changed) do
  if values[k] then
    call('PSETEX', KEYS[k], ttl_until(ends), blocking(values[k], blocks[k]))
  else
    call('UNLINK', KEYS[k])
  end
end
return table.concat(answer)
