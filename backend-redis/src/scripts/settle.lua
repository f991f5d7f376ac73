-- Settles a hold, finally or at the cost so far, or extends a hold.
--
-- KEYS: the keys of the charges in order, then the keys of their epochs, then the key of the id.
--
-- ARGV[1]: one call in the format of batch.lua. The cost of a charge is the actual total cost.
--
-- ARGV[2]: the head of the record, as in hold.lua, with a minimum of 0. In an extension, the life
-- of the record is twice the time by which the call extends the hold.
--
-- ARGV[3]: the time, if a test sets it.
--
-- Reply: the reply of batch.lua to one call. In the reply to a settlement, the amount that was
-- refunded or charged and a byte follow for each charge. The byte is 1 if the amount was charged,
-- or if nothing was refunded because the record of the hold in a log is not among the newest
-- MAX_UNDO records.
--
-- The reply is HOLD_UNKNOWN if there is no hold with this id, ID_REUSED if another call has used
-- the id, and ID_FOREIGN if the id has a foreign value. If the hold was settled before, the reply
-- is HOLD_SETTLED, the costs at which the hold was settled, and the reply to that settlement. If an
-- extension is too late, the reply is HOLD_LAPSED and the time since the lapse.
local id_key, id = KEYS[#KEYS], ARGV[2]
-- Move the time of a test from ARGV[3] to ARGV[2], because lib/now reads ARGV[2].
KEYS[#KEYS], ARGV[2] = nil, ARGV[3]
--- @include lib/now

local request = ARGV[1]
local op, count = parse('<BB', request)
--- @inline lib/settlement.read
--- @when lapse
do
  --- @inline lib/usual_slots.settle
end
--- @end

--- @include lib/rules
--- @include lib/value.read
--- @include lib/value.offenses
--- @include lib/levels
--- @include lib/value.block

local function parse_charge(place)
  return parse('<I2BBI7I7I7I7I7I7', request, CALL_HEAD + 1 + (place - 1) * CHARGE_SIZE)
end

--- @when lapse
--- @include settle_with_holds
--- @end
-- Evaluate all charges before the first write. An evaluation contains the state of the charge, the
-- numbers that the rule returns, and the change of the state.
local evaluations, totals, epoch_values, has_slots, failure = {}, {}, {}, false, nil
for place = 1, count do
  local _, rule, flags, total, _, p1, p2, p3, p4 = parse_charge(place)
  local key, epoch_key = KEYS[place], KEYS[count + place]
  local value, kind, blocked_until, is_list, offenses = read(key)
  local admits, a, b, c, d
  if kind ~= FOREIGN then
    admits, a, b, c, d = RULES[rule](value, kind, 0, PEEK, 0, nil, p1, p2, p3, p4, key, is_list)
  end
  if admits == nil then return pack('<BI7B', VERDICTS, now, place) end

  local held_cost = parse('<I7', record, held_at + (place - 1) * 7)
  local spent_cost = parse('<I7', record, spent_at + (place - 1) * 7)
  --- @inline lib/epoch.read
  --- @when lapse
  local held_before, is_revived = held_cost, false
  held_cost = still_held(place, held_cost, epoch)
  if op == EXTEND and rule == CONCURRENT and held_before > 0 and held_before < NOT_COUNTED then
    local own_hold, is_enforced = feet_by_key[key] and feet_by_key[key].own_hold, flags < SHADOW
    is_revived = is_late and own_hold
      and RULES[rule](value, kind, held_before, PEEK, 0, nil, p1, p2, p3, p4, key)
    if is_enforced and not is_late and not own_hold then
      failure = string.char(HOLD_UNKNOWN)
    elseif is_enforced and is_late and not is_revived then
      failure = pack('<BI7', HOLD_LAPSED, now - lapses_at)
    end
    has_slots = has_slots or is_enforced
  end
  --- @end
  --- @inline lib/settlement.change
  --- @when lapse
  if is_revived then change, cost = ACQUIRE, held_before end
  --- @end
  local function apply_rule(state, state_kind, rule_cost, rule_op, max_wait, rule_limit)
    return RULES[rule](state, state_kind, rule_cost, rule_op, max_wait, taken_at, rule_limit, p2, p3,
      p4, key, is_list, max)
  end
  --- @inline lib/settlement.refunds
  totals[place] = pack('<I7', math.max(spent_cost, total))

  local after, expires_at, plan, keeps_ttl
  if cost > 0 then
    local is_valid
    is_valid, _, _, out_of_reach, _, after, expires_at, plan, keeps_ttl =
      apply_rule(value, kind, cost, change, original_cost, limit)
    if is_valid == nil then return pack('<BI7B', VERDICTS, now, place) end
    -- An undo never makes a state live longer, so the current expiry of the key suffices.
    keeps_ttl = keeps_ttl or change == UNDO
  end
  local is_out_of_reach = change == UNDO and rule == SLIDING_LOG and after == nil and out_of_reach > 0
  evaluations[place] = {
    value = value, blocked_until = blocked_until, offenses = offenses, is_list = is_list,
    admits = admits, a = a, b = b, c = c, d = d,
    change = change, is_out_of_reach = is_out_of_reach, epoch_value = refunds_after, after = after,
    expires_at = expires_at, plan = plan, keeps_ttl = keeps_ttl,
    --- @when lapse
    is_revived = is_revived,
    --- @end
  }
end
--- @when lapse
if is_late and not has_slots then failure = pack('<BI7', HOLD_LAPSED, now - lapses_at) end
if failure then return failure end
--- @end

local answer = { pack('<BI7B', VERDICTS, now, 0) }
for place = 1, count do
  local evaluation, key = evaluations[place], KEYS[place]
  local admits, a, b, c, d, changed_by =
    evaluation.admits, evaluation.a, evaluation.b, evaluation.c, evaluation.d, 0
  local after, blocked_until, offenses =
    evaluation.after, evaluation.blocked_until, evaluation.offenses
  if evaluation.epoch_value then
    call('SET', KEYS[count + place], evaluation.epoch_value, 'KEEPTTL')
  end
  if after ~= nil then
    -- Write the new state. Keep a block that has not ended, and the offenses.
    if blocked_until <= now then blocked_until = 0 end
    offenses = remembered(offenses)
    local value, expires_at, plan, keeps_ttl =
      evaluation.value, evaluation.expires_at, evaluation.plan, evaluation.keeps_ttl
    local state = after or string.char(NONE)
    expires_at = math.max(after and expires_at or 0, blocked_until, forgotten_at(offenses))
    after = blocking(state, blocked_until, offenses)
    if STATE_HOLDS then
      -- The state is not written here, because `change_hold` below writes the state together with
      -- its holds.
    elseif plan then
      write_parts(key, value, evaluation.is_list, after, expires_at, plan)
    elseif evaluation.after or blocked_until > 0 or offenses then
      --- @inline lib/write.string
    else
      call('UNLINK', key)
    end

    local _, rule, _, _, _, p1, p2, p3, p4 = parse_charge(place)
    local before, unit = held(rule, a, b, c, p2)
    admits, a, b, c, d =
      RULES[rule](state, state:byte(), 0, PEEK, 0, nil, p1, p2, p3, p4, key, plan and true)
    changed_by = math.abs(held(rule, a, b, c, p2) - before)
    changed_by = (changed_by - changed_by % unit) / unit
  end
  --- @when lapse
  change_hold(place, evaluation, totals[place])
  --- @end
  local outcome = now < blocked_until and BLOCKED or admits and ALLOWED or DENIED
  local current = evaluation.value
  if evaluation.after ~= nil then current = evaluation.after end
  if current and current:byte() >= DRIFT then answer[#answer + 1] = string.char(WITH_VALUE) .. current end
  answer[#answer + 1] =
    pack('<BI7I7I7I7I7', outcome + LEVEL_UNIT * level_of(offenses), blocked_until, a, b, c, d)
  if op ~= EXTEND then
    local is_marked = changed_by > 0 and evaluation.change == ACQUIRE or evaluation.is_out_of_reach
    answer[#answer + 1] = pack('<I7B', changed_by, is_marked and 1 or 0)
  end
end
--- @when lapse
add_open_holds(answer)
--- @end
local reply = table.concat(answer)
totals = table.concat(totals)
--- @inline lib/settlement.write
return reply
