-- Settles a hold, in the end or so far, or extends it.
--
-- KEYS: the key of each charge, in order; the key of the id. ARGV[1]: as of batch.lua, one call; a cost is the total
-- that was used. ARGV[2]: as of hold.lua, with a minimum of 0; an extension is by its life. The time of a test is the
-- argument after it.
-- Reply: as of batch.lua to one call, with what was given back or charged of each charge, unless it is an extension;
-- or ID_REUSED, ID_FOREIGN, HOLD_UNKNOWN; HOLD_SETTLED, the costs at which the hold is settled, and the reply to that;
-- HOLD_LAPSED and since when.
local id_key, id = KEYS[#KEYS], ARGV[2]
KEYS[#KEYS], ARGV[2] = nil, ARGV[3]
--> head.lua

local request, asked = ARGV[1], id:sub(ID_REQUEST + 1)
local op, count = parse('<BB', request)
--> id_record.lua
if not record then return string.char(HOLD_UNKNOWN) end
--> hold_record.lua
local life, _, taken_at = parse('<I7BI7', record, FINGERPRINT + 1)
local spent, costs = record:sub(spent_at, replies_at - 1), asked:sub(8)
if #record >= replies_at + reply_size then
  local settlement = record:sub(replies_at + reply_size)
  if op == SETTLE and spent == costs then return settlement end
  return string.char(HOLD_SETTLED) .. spent .. settlement
end
if op == EXTEND and now >= lapses_at then return pack('<BI7', HOLD_LAPSED, now - lapses_at) end

--> rules.lua
--> read.lua
--> levels.lua
--> blocking.lua

local function charge(place)
  return parse('<I2BBI7I7I7I7I7I7', request, CALL_HEAD + 1 + (place - 1) * CHARGE_SIZE)
end

--> settle_holds.lua
-- Evaluates all charges before the first write. By place: the state, the numbers of its rule, and what it becomes.
local states, totals = {}, {}
for place = 1, count do
  local _, rule, _, total, _, p1, p2, p3, p4 = charge(place)
  local key = KEYS[place]
  local value, kind, blocked_until, is_list = read(key)
  --> ITS_LAPSES
  local admits, a, b, c, d
  if kind ~= FOREIGN then
    admits, a, b, c, d = RULES[rule](value, kind, 0, PEEK, 0, nil, p1, p2, p3, p4, key, is_list)
  end
  if admits == nil then return pack('<BI7B', VERDICTS, now, place) end

  -- What is to be changed, and by how much.
  local its_held = parse('<I7', record, held_at + (place - 1) * 7)
  local its_spent = parse('<I7', record, spent_at + (place - 1) * 7)
  --> ITS_HELD
  local charged, change, cost = math.max(its_held, its_spent), PEEK, 0
  if op == EXTEND or its_held == NOT_COUNTED then
    change = PEEK
  elseif total > charged then
    change, cost = ACQUIRE, math.min(total - charged, room(rule, a, b, c, p2, p3, p4))
  elseif op == SETTLE and total < its_held and value then
    change, cost = UNDO, its_held - total
  end
  totals[place] = pack('<I7', math.max(its_spent, total))

  local after, expires_at, plan, keeps_ttl
  if cost > 0 then
    local limit, taken, max = p1, its_held, nil
    if change == ACQUIRE then
      limit, taken, max = math.huge, 0, max_records(rule, p1, p2, p3)
    end
    local is_valid
    is_valid, _, _, _, _, after, expires_at, plan, keeps_ttl =
      RULES[rule](value, kind, cost, change, taken, taken_at, limit, p2, p3, p4, key, is_list, max)
    if is_valid == nil then return pack('<BI7B', VERDICTS, now, place) end
  end
  states[place] = {
    value = value, blocked_until = blocked_until, is_list = is_list, admits = admits, a = a, b = b, c = c, d = d,
    after = after, expires_at = expires_at, plan = plan, keeps_ttl = keeps_ttl,
  }
end

local answer = { pack('<BI7B', VERDICTS, now, 0) }
for place = 1, count do
  local it, key = states[place], KEYS[place]
  local admits, a, b, c, d, changed_by = it.admits, it.a, it.b, it.c, it.d, 0
  local after, blocked_until = it.after, it.blocked_until
  if after ~= nil then
    -- Writes the state. A block stays.
    if blocked_until <= now then blocked_until = 0 end
    local value, expires_at, plan, keeps_ttl = it.value, it.expires_at, it.plan, it.keeps_ttl
    local state = after or string.char(NONE)
    expires_at = math.max(after and expires_at or 0, blocked_until)
    after = blocking(state, blocked_until)
    if plan then
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
  if op ~= EXTEND then answer[#answer + 1] = pack('<I7', changed_by) end
end
--> ITS_REPLY
local reply = table.concat(answer)

if op == EXTEND then
  local span = parse('<I7', id, FINGERPRINT + 1) / 2
  lapses_at = math.max(lapses_at, now + span)
  local ends, ttl = math.max(taken_at + life, lapses_at + span), nil
  record = record:sub(1, FINGERPRINT) .. pack('<I7', ends - taken_at) .. record:sub(ID_REQUEST, ID_HEAD)
    .. pack('<I7', lapses_at) .. record:sub(ID_HEAD + 8)
  --> ttl.lua
  call('PSETEX', id_key, ttl, record)
else
  local settlement = ''
  if op == SETTLE then settlement = reply else costs = table.concat(totals) end
  record = record:sub(1, spent_at - 1) .. costs .. record:sub(replies_at) .. settlement
  call('SET', id_key, record, 'KEEPTTL')
end
return reply
