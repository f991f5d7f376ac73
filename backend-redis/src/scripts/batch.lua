-- Decides any number of calls, one after the other. Each call has any number of charges by any
-- rules.
--
-- KEYS: the keys of all calls, each key once.
--
-- ARGV[1] contains, for each call: the operation, the number of charges, the argument, and the
-- charges. The argument is the maximum wait of an acquire, the minimum of an acquire of up to the
-- costs, the length of a block, or the time of the charge that an undo undoes.
--
-- A charge in ARGV[1] consists of the number of its key, the rule, the flags, the cost, the penalty
-- (the length of the first block after a denial), the four numbers of the policy, and the growth of
-- blocks. A charge of a reset or a refund has the number of the key of the epoch instead of the
-- penalty (see lib/epoch.lua). No two charges of a call have the same key.
--
-- The growth of blocks consists of the factor (1 byte), the maximum length of a block, and the time
-- from the end of a block until the offenses are forgotten (0 if blocks do not grow). RESTARTS is
-- added to the factor if a refusal during a block restarts the block.
--
-- ARGV[2]: the time, if a test sets it.
--
-- Reply: VERDICTS, now, and the reply to each call. If the client can compute the reply to a call
-- from the written value, the reply to the call is only this value. If the key of a charge has a
-- foreign value, the reply to the call is the place (from 1) of the first such charge in the call.
--
-- Every other reply to a call consists of 0 and the replies to the charges. If the value of the key
-- is a quota of the kind DRIFT or TOPPED_UP, the reply to a charge begins with WITH_VALUE and this
-- value. The rest of the reply is the outcome plus LEVEL_UNIT times the level (the number of
-- offenses), the time until which the key is blocked, three numbers of the rule (a, b, c), and the
-- time at which the state ends (d). For a refund, an undo and a charge beyond the limit, the amount
-- follows, a whole number.
--
-- In the reply to an acquire of up to the costs, the amount that each charge was charged follows
-- the first 0. If the call is denied, this amount is 0.

--- @include lib/now
--- @include lib/rules
--- @include lib/value.read
--- @include lib/value.offenses
--- @include lib/levels

local request = ARGV[1]
local answer = { pack('<BI7', VERDICTS, now) }

-- `found` contains the string that each key had at the start of the script, by the number of the
-- key. If the fast path (the loop at the end of this file) has written a new string, `found`
-- contains the new string.
--- @when plain
--- @inline lib/read_keys
--- @end
--- @when lapse
local found, others_absent = {}, false
--- @end

-- Tables of the keys that the fast path (the loop at the end of this file) did not handle,
-- indexed by the number of the key: the value, its kind, the time until which the value blocks,
-- whether the value is a list or a hash, and the offenses (see lib/value.lua). For each key that
-- must still be written, `changed` contains the time until which the key must live.
local values, kinds, blocks, lists, offenses, changed = {}, {}, {}, {}, {}, {}

local function load_state(k)
  if kinds[k] then return end
  if found[k] then
    values[k], kinds[k], blocks[k], offenses[k] = decode(found[k])
  elseif others_absent then
    kinds[k], blocks[k] = NONE, 0
  else
    values[k], kinds[k], blocks[k], lists[k], offenses[k] = read(KEYS[k])
  end
end

--- @include lib/value.block

local function ttl_until(ends)
  local ttl
  --- @inline lib/ttl.text
  return ttl
end

-- Returns the time at which the key expires if the script writes nothing more to the key.
local function ends_at(k)
  return changed[k] or values[k] and call('PTTL', KEYS[k]) * 1000 + now or 0
end

-- Sets a state. A string is written at the very end of the script. A list or a hash is written
-- immediately, because a later call may read its elements.
local function set_state(k, value, kind, blocked_until, expires_at, plan)
  expires_at = math.max(expires_at, blocked_until, forgotten_at(offenses[k]))
  if plan then
    -- If this script has removed the state, the key still exists, because the script removes keys
    -- only at its end.
    local is_there = values[k] or changed[k]
    write_parts(KEYS[k], is_there, lists[k], blocking(value, blocked_until, offenses[k]), expires_at,
      plan)
    lists[k], changed[k] = true, nil
  else
    lists[k], changed[k] = false, expires_at
  end
  values[k], kinds[k], blocks[k] = value, kind, blocked_until
end

local function remove_state(k)
  values[k], kinds[k], blocks[k], lists[k], offenses[k], changed[k] = nil, NONE, 0, false, nil, 0
end

-- Blocks a key until the time `blocked_until`, or removes the block and the offenses of the key if
-- the time is 0. `forget` is the time from the end of the block until the offenses are forgotten,
-- or 0 if the policy does not determine it. `level` is the new level, or `nil` to keep the level.
local function set_block(k, blocked_until, forget, level)
  local kind, ends, old = kinds[k], ends_at(k), offenses[k]
  level, offenses[k] = level or level_of(old), nil
  if blocked_until > 0 and level > 0 then
    local until_forgotten =
      forget > 0 and blocked_until + forget or math.max(forgotten_at(old), blocked_until)
    offenses[k] = pack('<BI7', level, until_forgotten)
  end
  if kind == NONE and blocked_until == 0 then return remove_state(k) end
  local plan = lists[k] and { from = 0, to = -1 }
  set_state(k, values[k] or string.char(NONE), kind, blocked_until, ends, plan)
end

-- Applies a refund, an undo or an acquire to a state, by the rule of a charge. Keeps the block and
-- the offenses of the state.
local function change_state(op, k, rule, cost, taken_at, p1, p2, p3, p4, max_records)
  local _, _, _, _, _, after, expires_at, plan =
    RULES[rule](values[k], kinds[k], cost, op, op == UNDO and cost or 0, taken_at, p1, p2, p3, p4,
      KEYS[k], lists[k], max_records)
  local blocked_until = blocks[k] > now and blocks[k] or 0
  if after ~= nil then offenses[k] = remembered(offenses[k]) end
  if after then
    set_state(k, after, after:byte(), blocked_until, expires_at, plan)
  elseif after == false and (blocked_until > 0 or offenses[k]) then
    set_state(k, string.char(NONE), NONE, blocked_until, 0)
  elseif after == false then
    remove_state(k)
  end
end

-- Parses one charge of a call. The charges of the call begin at byte `charges` of the request.
local function parse_charge(charges, place)
  return parse('<I2BBI7I7I7I7I7I7', request, charges + (place - 1) * CHARGE_SIZE)
end

-- Parses the growth of blocks of a charge.
local function parse_growth(charges, place)
  return parse('<BI7I7', request, charges + place * CHARGE_SIZE - GROWTH_SIZE)
end

-- Blocks a key after a denial, or restarts its block after a refusal during the block, as
-- core/src/engine/block.rs does.
local function penalize(k, outcome, penalty, charges, place)
  local factor, max, forget = parse_growth(charges, place)
  local level, restarts = level_of(offenses[k]), factor >= RESTARTS
  if restarts then factor = factor - RESTARTS end
  local wanted = outcome == DENIED and level + 1 or math.max(level, 1)
  local reached, length = 1, penalty
  while reached < wanted and length < max do
    reached, length = reached + 1, math.min(length * factor, max)
  end
  if outcome == DENIED then
    set_block(k, now + length, forget, forget > 0 and reached or nil)
  elseif restarts and now + length > blocks[k] then
    set_block(k, now + length, forget)
  end
end

local function is_shadow(flags)
  return flags % CHECK_ONLY == SHADOW
end

-- Tables of the charges of the current call, indexed by the place of the charge in the call.
-- `firsts` to `fourths` are the outputs a, b, c and d of the rule.
local keys, outcomes, firsts, seconds, thirds, fourths = {}, {}, {}, {}, {}, {}
local costs, afters, expiries, plans, amounts, refunds = {}, {}, {}, {}, {}, {}

-- For each list of alternatives of the current call, the place of the charge that pays, or `false`
-- if no charge of the list is admitted. It is `nil` if the call has no list.
local payers

local function list_of(flags)
  return (flags - flags % LIST_UNIT) / LIST_UNIT
end

-- Returns whether an allowed call makes the charge, with the evaluated outcomes.
local function is_made(place, flags)
  return outcomes[place] == ALLOWED and (flags < LIST_UNIT or payers[list_of(flags)] == place)
end

-- Evaluates all charges. If `amount` is given, it replaces the cost of every charge that is not
-- check-only. If a charge has a foreign value, the function returns the place (from 1) of the first
-- such charge in the call. Otherwise it returns 0, and whether the call is allowed.
local function evaluate(op, count, max_wait, charges, amount)
  local allowed = true
  payers = nil
  for place = 1, count do
    local k, rule, flags, cost, _, p1, p2, p3, p4 = parse_charge(charges, place)
    load_state(k)
    if kinds[k] == FOREIGN then return place end
    local is_taken, list = flags < CHECK_ONLY, nil
    if flags >= LIST_UNIT then
      list, payers = list_of(flags), payers or {}
      is_taken = not payers[list]
    end
    if is_taken and amount then cost = amount end
    costs[place] = cost
    local is_blocked = now < blocks[k]
    local admits
    admits, firsts[place], seconds[place], thirds[place], fourths[place], afters[place], expiries[place],
      plans[place] =
      RULES[rule](values[k], kinds[k], cost, (is_blocked or cost == 0 or not is_taken) and PEEK or op,
        max_wait, nil, p1, p2, p3, p4, KEYS[k], lists[k])
    if admits == nil then return place end
    keys[place], outcomes[place] = k, is_blocked and BLOCKED or admits and ALLOWED or DENIED
    if list and not is_blocked then
      payers[list] = payers[list] or admits and place
    elseif outcomes[place] ~= ALLOWED and not is_shadow(flags) then
      allowed = false
    end
  end
  if payers then
    for _, payer in pairs(payers) do allowed = allowed and payer ~= false end
  end
  return 0, allowed
end

-- Makes the reply to a charge a peek, because the charge is not made.
local function peek_again(place, charges)
  local k = keys[place]
  local _, rule, _, _, _, p1, p2, p3, p4 = parse_charge(charges, place)
  _, firsts[place], seconds[place], thirds[place], fourths[place] =
    RULES[rule](values[k], kinds[k], costs[place], PEEK, 0, nil, p1, p2, p3, p4, KEYS[k], lists[k])
end

-- Writes all evaluated charges if the call is allowed. If the call is refused, writes only the
-- penalties (the blocks that follow denials), and the demands of the members of fair pools.
local function commit_charges(count, charges, allowed)
  for place = 1, count do
    local k, after, cost = keys[place], afters[place], costs[place]
    if outcomes[place] ~= ALLOWED then
      local _, _, flags, _, penalty, p1 = parse_charge(charges, place)
      -- A charge with a cost above the limit is denied, but causes no penalty (no block).
      if penalty > 0 and cost > 0 and cost <= p1 then
        penalize(k, outcomes[place], penalty, charges, place)
      end
      if after and flags >= LIST_UNIT and payers[list_of(flags)] then
        peek_again(place, charges) -- Another charge of the list pays.
      elseif after then -- the demand of a charge that a fair pool denies
        set_state(k, after, POOL, 0, expiries[place], plans[place])
      end
    elseif allowed and after then
      offenses[k] = remembered(offenses[k])
      set_state(k, after, after:byte(), 0, expiries[place], plans[place])
    elseif after then
      peek_again(place, charges) -- Another charge of the call is denied.
    end
  end
end

-- Returns the maximum amount that all enforced policies admit, for an acquire of up to the costs.
-- Returns `nil` if this maximum is less than `min`. The caller must have evaluated all charges as
-- peeks before.
local function common_amount(count, min, charges)
  local amount
  for place = 1, count do
    local _, rule, flags, cost, _, p1, p2, p3 = parse_charge(charges, place)
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

-- Makes a charge beyond the limit, as an acquire without a limit. If the state cannot hold the
-- whole cost, the function charges only the part that fits.
local function charge_beyond_limit(place, k, rule, cost, p1, p2, p3, p4)
  cost = math.min(cost, room(rule, firsts[place], seconds[place], thirds[place], p2, p3, p4))
  local max = max_records(rule, p1, p2, p3)
  local limit = rule >= QUOTA and -1 - p1 or math.huge
  if cost > 0 then change_state(ACQUIRE, k, rule, cost, nil, limit, p2, p3, p4, max) end
end

--- @include lib/epoch.refund

-- Executes a refund, an undo, a charge beyond the limit, a reset or a block. These operations
-- change states without a check of the limits. The reply has the numbers of a peek with a cost of
-- 0, which the function executes after the change.
local function change_states(op, count, argument, charges)
  for place = 1, count do
    local k, rule, _, cost, epoch, p1, p2, p3, p4 = parse_charge(charges, place)
    local before, unit = held(rule, firsts[place], seconds[place], thirds[place], p2)
    local _, _, forget = parse_growth(charges, place)
    if op == BLOCK then
      if argument > 0 or values[k] then set_block(k, argument > 0 and now + argument or 0, forget) end
    elseif op == BLOCK_AT_LEAST then
      if argument > 0 and blocks[k] < now + argument then set_block(k, now + argument, forget) end
    elseif op == RESET then
      if values[k] then remove_state(k) end
      call('UNLINK', KEYS[epoch])
    elseif op == CHARGE then
      charge_beyond_limit(place, k, rule, cost, p1, p2, p3, p4)
    elseif op == GRANT then
      change_state(op, k, rule, cost, argument, p1, p2, p3, p4)
    elseif values[k] and cost > 0 and (op == REFUND or cost <= (rule == QUOTA and MAX_EXACT or p1)) then
      -- A call with a cost above the limit was never admitted, so an undo of such a cost changes
      -- nothing. Only a quota with grants admits a higher cost.
      change_state(op, k, rule, cost, argument, p1, p2, p3, p4)
    end
    local admits
    admits, firsts[place], seconds[place], thirds[place], fourths[place] =
      RULES[rule](values[k], kinds[k], 0, PEEK, 0, nil, p1, p2, p3, p4, KEYS[k], lists[k])
    outcomes[place] = now < blocks[k] and BLOCKED or admits and ALLOWED or DENIED
    local changed_by = math.abs(held(rule, firsts[place], seconds[place], thirds[place], p2) - before)
    amounts[place] = (changed_by - changed_by % unit) / unit
    if op == REFUND then
      -- A refund of the whole debt can include a part of a token. The amount contains only whole
      -- tokens, so count this part as one token.
      local has_part = rule == TOKEN_BUCKET and amounts[place] < cost
      refunds[place] = amounts[place] + (has_part and 1 or 0)
      if refunds[place] > 0 then note_refund(KEYS[epoch], refunds[place]) end
    end
  end
end

-- Decides one call and adds its reply to `answer`.
local function decide(op, count, argument, charges)
  local is_check = op == ACQUIRE or op == PEEK
  local foreign, allowed =
    evaluate(is_check and op or PEEK, count, is_check and argument or 0, charges)
  answer[#answer + 1] = string.char(foreign)
  if foreign > 0 then return end
  if op == ACQUIRE_UP_TO then
    -- If the policies admit less than the minimum, the call becomes an acquire of the minimum,
    -- which is denied.
    local amount = common_amount(count, argument, charges)
    foreign, allowed = evaluate(ACQUIRE, count, 0, charges, amount or argument)
    answer[#answer + 1] = pack('<I7', allowed and amount or 0)
  end
  --- @when id
  if op == GRANT then
    for place = 1, count do
      local k, rule, _, cost, _, p1, p2, p3, p4 = parse_charge(charges, place)
      if not RULES[rule](values[k], kinds[k], cost, op, 0, argument, p1, p2, p3, p4) then
        answer = { string.char(TOO_MANY_GRANTS, place) }
        return
      end
    end
  end
  --- @end
  if op == ACQUIRE or op == ACQUIRE_UP_TO then
    commit_charges(count, charges, allowed)
  elseif not is_check then
    change_states(op, count, argument, charges)
  end
  --- @when id
  -- A refused call gets no record under its id.
  is_done = allowed or op ~= ACQUIRE and op ~= ACQUIRE_UP_TO
  --- @end
  --- @when hold
  -- The held and the spent cost of each charge. If the call is refused, `held_and_spent` stays
  -- `nil`.
  if allowed then
    local held_costs = {}
    for place = 1, count do
      local _, _, flags = parse_charge(charges, place)
      local held_cost = flags % LIST_UNIT < CHECK_ONLY and costs[place] or 0
      held_costs[place] = pack('<I7', is_made(place, flags) and held_cost or NOT_COUNTED)
    end
    held_and_spent = table.concat(held_costs) .. string.rep('\0', 7 * count)
  end
  --- @end
  local has_amounts = op == REFUND or op == UNDO or op == CHARGE
  for place = 1, count do
    local k = keys[place]
    if values[k] and kinds[k] >= DRIFT then answer[#answer + 1] = string.char(WITH_VALUE) .. values[k] end
    answer[#answer + 1] = pack('<BI7I7I7I7I7', outcomes[place] + LEVEL_UNIT * level_of(offenses[k]), blocks[k],
      firsts[place], seconds[place], thirds[place], fourths[place])
    if has_amounts then answer[#answer + 1] = pack('<I7', amounts[place]) end
  end
end

--- @when lapse
--- @include batch_with_holds
--- @end
--- @when id hold
-- A call with an id needs `is_done` and `held_and_spent`, which only `decide` sets. So load all
-- states, because the fast path handles no state that is loaded.
for k = 1, #KEYS do load_state(k) end
--- @end
--- @when lapse
--- @inline batch_with_holds.check
--- @end
local at = 1
while at <= #request do
  local op, count, argument, k, rule, flags, cost, penalty, p1, p2, p3, p4 =
    parse('<BBI7I2BBI7I7I7I7I7I7', request, at)
  local charges = at + CALL_HEAD
  at = charges + count * CHARGE_SIZE

  -- The fast path decides an acquire of one charge without a wait. It requires that the key is
  -- absent or has a string of the kind of the rule.
  local value, kind = found[k], KINDS[rule] or p4
  if not value then value, kind = nil, NONE end
  if op == ACQUIRE and count == 1 and argument == 0 and cost > 0 and flags < CHECK_ONLY
    and SIZES[rule] > 0 and not kinds[k]
    and (value and #value == SIZES[rule] and value:byte() == kind or others_absent and not value) then
    local admits, a, b, c, d, after, expires_at, _, keeps_ttl =
      RULES[rule](value, kind, cost, ACQUIRE, 0, nil, p1, p2, p3, p4)
    if after then
      local key, blocked_until = KEYS[k], 0
      --- @inline lib/write.string
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

--- @when lapse
--- @inline batch_with_holds.write
--- @end
for k, ends in pairs(changed) do
  if values[k] then
    call('PSETEX', KEYS[k], ttl_until(ends), blocking(values[k], blocks[k], offenses[k]))
  else
    call('UNLINK', KEYS[k])
  end
end
return table.concat(answer)
