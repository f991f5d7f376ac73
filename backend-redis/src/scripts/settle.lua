-- Settles a hold, in the end or so far, or extends it.
--
-- KEYS: the keys of the charges, in order, then the keys of their epochs, then the key of the id.
-- ARGV[1]: as of batch.lua, one call; a cost is the total that was used.
-- ARGV[2]: as of hold.lua, with a minimum of 0; an extension is by its life.
-- ARGV[3]: the time of a test, if there is one.
--
-- Reply: as of batch.lua to one call. A settlement adds to each charge the amount that was
-- refunded or charged, and a byte. The byte is 1 if the amount was charged, or if it is 0 because
-- the hold is out of reach in a log. Other replies are:
--   ID_REUSED, ID_FOREIGN, HOLD_UNKNOWN
--   HOLD_SETTLED, the costs at which the hold is settled, and the reply to that settlement
--   HOLD_LAPSED, and since when
local id_key, id = KEYS[#KEYS], ARGV[2]
KEYS[#KEYS], ARGV[2] = nil, ARGV[3]
--> head.lua

local request = ARGV[1]
local op, count = parse('<BB', request)
--> settle_record.lua

--> rules.lua
--> read.lua
--> levels.lua
--> blocking.lua

local function charge(place)
  return parse('<I2BBI7I7I7I7I7I7', request, CALL_HEAD + 1 + (place - 1) * CHARGE_SIZE)
end

--> settle_holds.lua
-- Evaluates all charges before the first write. By place: the state, the numbers of its rule, and what it becomes.
local states, totals, epoch_values = {}, {}, {}
for place = 1, count do
  local _, rule, _, total, _, p1, p2, p3, p4 = charge(place)
  local key, epoch_key = KEYS[place], KEYS[count + place]
  local value, kind, blocked_until, is_list = read(key)
  local admits, a, b, c, d
  if kind ~= FOREIGN then
    admits, a, b, c, d = RULES[rule](value, kind, 0, PEEK, 0, nil, p1, p2, p3, p4, key, is_list)
  end
  if admits == nil then return pack('<BI7B', VERDICTS, now, place) end

  -- What is to be changed, and by how much.
  local held_cost = parse('<I7', record, held_at + (place - 1) * 7)
  local spent_cost = parse('<I7', record, spent_at + (place - 1) * 7)
  --> settle_epoch.lua
  --> ITS_HELD
  --> settle_change.lua
  local function by_rule(state, state_kind, rule_cost, rule_op, max_wait, rule_limit)
    return RULES[rule](state, state_kind, rule_cost, rule_op, max_wait, taken_at, rule_limit, p2, p3, p4, key,
      is_list, max)
  end
  --> settle_refunds.lua
  totals[place] = pack('<I7', math.max(spent_cost, total))

  local after, expires_at, plan, keeps_ttl
  if cost > 0 then
    local is_valid
    is_valid, _, _, out_of_reach, _, after, expires_at, plan, keeps_ttl =
      by_rule(value, kind, cost, change, taken, limit)
    if is_valid == nil then return pack('<BI7B', VERDICTS, now, place) end
    --> settle_ttl.lua
  end
  local is_out_of_reach = change == UNDO and rule == SLIDING_LOG and after == nil and out_of_reach > 0
  states[place] = {
    value = value, blocked_until = blocked_until, is_list = is_list, admits = admits, a = a, b = b, c = c, d = d,
    change = change, is_out_of_reach = is_out_of_reach, refunds = refunds_after, after = after,
    expires_at = expires_at, plan = plan, keeps_ttl = keeps_ttl,
  }
end

local answer = { pack('<BI7B', VERDICTS, now, 0) }
for place = 1, count do
  local it, key = states[place], KEYS[place]
  local admits, a, b, c, d, changed_by = it.admits, it.a, it.b, it.c, it.d, 0
  local after, blocked_until = it.after, it.blocked_until
  if it.refunds then call('SET', KEYS[count + place], it.refunds, 'KEEPTTL') end
  if after ~= nil then
    -- Writes the state. A block stays.
    if blocked_until <= now then blocked_until = 0 end
    local value, expires_at, plan, keeps_ttl = it.value, it.expires_at, it.plan, it.keeps_ttl
    local state = after or string.char(NONE)
    expires_at = math.max(after and expires_at or 0, blocked_until)
    after = blocking(state, blocked_until)
    if STATE_HAS_HOLDS then -- Written with its holds below.
    elseif plan then
      write_list(key, value, it.is_list, after, expires_at, plan)
    elseif it.after or blocked_until > 0 then
      --> write_string.lua
    else
      call('UNLINK', key)
    end

    local _, rule, _, _, _, p1, p2, p3, p4 = charge(place)
    local before, unit = held(rule, a, b, c, p2)
    admits, a, b, c, d =
      RULES[rule](state, state:byte(), 0, PEEK, 0, nil, p1, p2, p3, p4, key, plan and true)
    changed_by = math.abs(held(rule, a, b, c, p2) - before)
    changed_by = (changed_by - changed_by % unit) / unit
  end
  --> ITS_HOLD
  local outcome = now < blocked_until and BLOCKED or admits and ALLOWED or DENIED
  answer[#answer + 1] = pack('<BI7I7I7I7I7', outcome, blocked_until, a, b, c, d)
  if op ~= EXTEND then
    local is_marked = changed_by > 0 and it.change == ACQUIRE or it.is_out_of_reach
    answer[#answer + 1] = pack('<I7B', changed_by, is_marked and 1 or 0)
  end
end
--> ITS_REPLY
local reply = table.concat(answer)
totals = table.concat(totals)
--> settle_write.lua
return reply
