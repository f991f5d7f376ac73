--- The holds on a state, for policies that refund lapsed holds (`refund-lapsed`). Twin of
--- core/src/engine/state_holds.rs.
---
--- A state with holds is a sorted set, so that an eviction removes the state and its holds together,
--- and a call reads and writes only the holds that it needs:
---
---   score         member
---   +inf          the state: its value and its block as in a string, then the foot
---   lapses_at     an open hold
---   -expires_at   a lapsed hold, until it expires
---
---   foot: | rule 1 | p2 7 | p3 7 | p4 7 | unspent 7 | number 4 | open 4 | lapsed 4 | refunded 7 |
---         | refunded_at 7 | due 7 | ends 7 | lives 7 | HOLDS 1 |
---   hold: | number 4 | key 16 | taken_at 7 | cost 7 | spent 7 | expires_at 7 |
---         | refunded 7, if it has lapsed |
---
---   rule, p2 …     the rule that wrote the state last; it refunds lapsed holds
---   unspent        the sum of the unspent parts of the open holds
---   number         in the foot: the number of holds so far. In a hold: the number of the hold,
---                  big-endian, so that the older of two holds that lapse together is first
---   open, lapsed   the number of open and of lapsed holds
---   refunded       the sum of refunds that may have refunded an open hold; and the time of the
---                  last one
---   due            no hold lapses or expires before this time
---   ends           the time until which a hold is known
---   lives          the time until which the key lives at least
---   key            SHA-1 of the key of the hold's id: its first 16 hexadecimal digits
---
--- Scripts without this file treat a sorted set as a foreign value and do not change it.
local time = now

-- The holds that were read, by key.
local holds_of = {}

-- A log with holds is one string, and its number of records is bounded: beyond that, a charge moves
-- the newest record to now.
local log = RULES[SLIDING_LOG]
RULES[SLIDING_LOG] = function(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
  if p4 == 1 and holds_of[key] then
    p4, max_records = 0, math.min(max_records or MAX_RECORDS_WITH_HOLDS, MAX_RECORDS_WITH_HOLDS)
  end
  return log(value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
end

local function score(number)
  return string.format('%.0f', number)
end

-- Writes a state with holds. `expires_at` is the time until which the state matters. To set the
-- expiry of a key costs as much as to write it, so the key gets a quarter more life than it needs.
local function write_state(key, entry, value, blocked_until, expires_at)
  local ends, ttl = math.max(expires_at, blocked_until, entry.ends)
  local is_short = ends > entry.lives
  if is_short then
    ends = math.min(ends + (ends - now - (ends - now) % 4) / 4, MODULUS)
    entry.lives = ends
  end
  local member = blocking(value, blocked_until)
    .. pack('<BI7I7I7I7I4I4I4I7I7I7I7I7B', entry.rule, entry.p2, entry.p3, entry.p4, entry.unspent,
      entry.number, entry.open, entry.lapsed, entry.refunded, entry.refunded_at, entry.due,
      entry.ends, entry.lives, HOLDS)
  if entry.made then
    call('ZADD', key, '+inf', member, entry.made_score, entry.made)
  elseif member ~= entry.member then
    call('ZADD', key, '+inf', member)
  end
  local former = member ~= entry.member and entry.member
  if former and entry.removed then
    call('ZREM', key, former, entry.removed)
  elseif former or entry.removed then
    call('ZREM', key, former or entry.removed)
  end
  entry.member, entry.made, entry.removed = member, nil, nil
  if is_short then
    --- @inline lib/ttl.text
    call('PEXPIRE', key, ttl)
  end
end

-- Writes a state and its holds: as a string if no hold remains, and not at all if nothing is charged
-- either.
local function write_holds(key, entry, value, blocked_until, expires_at)
  if entry.open + entry.lapsed > 0 then return write_state(key, entry, value, blocked_until, expires_at) end
  if blocked_until == 0 and value:byte() == NONE then return call('UNLINK', key) end
  local ends, ttl = math.max(entry.lives, expires_at, blocked_until)
  --- @inline lib/ttl.text
  call('PSETEX', key, ttl, blocking(value, blocked_until))
end

-- Refunds the unspent part of a charge by the rule that wrote the state, minus the refunds that may
-- have refunded it (see lib/settlement.refunds). Returns the new state, and the refunded amount.
local take_back
take_back = function(entry, value, kind, key, cost, taken_at, taken)
  local rule, p2, p3, p4 = entry.rule, entry.p2, entry.p3, entry.p4
  local function by_rule(part_cost, op)
    return RULES[rule](value, kind, part_cost, op, taken, taken_at, math.huge, p2, p3, p4, key, false)
  end
  local _, a, b, c = by_rule(0, PEEK)
  local before, unit = held(rule, a, b, c, p2)
  local _, _, _, _, _, after = by_rule(cost, UNDO)
  if after == nil then return value, kind, 0 end
  local value_before, kind_before = value, kind
  value = after or string.char(NONE)
  kind = value:byte()
  _, a, b, c = by_rule(0, PEEK)
  local amount = before - held(rule, a, b, c, p2)
  amount = (amount - amount % unit) / unit
  if entry.refunded == 0 or entry.refunded_at < taken_at then return value, kind, amount end
  local counted = math.min(entry.refunded, amount)
  entry.refunded = entry.refunded - counted
  value, kind = value_before, kind_before
  if amount == counted then return value, kind, 0 end
  return take_back(entry, value, kind, key, amount - counted, taken_at, taken - counted)
end

-- Refunds each hold that has lapsed, at the time at which it lapsed, and forgets the holds that have
-- expired. Returns the new state.
local function settle_due(key, entry, value, kind, blocked_until)
  if entry.due > time then return value, kind end
  local due = call('ZRANGEBYSCORE', key, score(-time), score(time), 'WITHSCORES')
  for place = 1, #due, 2 do
    local member, lapses_at = due[place], tonumber(due[place + 1])
    call('ZREM', key, member)
    if lapses_at <= 0 then
      entry.lapsed = math.max(entry.lapsed - 1, 0)
    elseif #member == STATE_HOLD then
      local taken_at, cost, spent, expires_at = parse('<I7I7I7I7', member, HOLD_KEY + 1)
      local refunded = 0
      if spent < cost then
        now = lapses_at
        value, kind, refunded = take_back(entry, value, kind, key, cost - spent, taken_at, cost)
        now = time
      end
      entry.open = math.max(entry.open - 1, 0)
      entry.unspent = math.max(entry.unspent - math.max(cost - spent, 0), 0)
      if expires_at > time then
        call('ZADD', key, score(-expires_at), member .. pack('<I7', refunded))
        entry.lapsed = entry.lapsed + 1
      end
    end
  end
  local open = call('ZRANGEBYSCORE', key, '(' .. score(time), '(+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  local lapsed = call('ZREVRANGEBYSCORE', key, '(0', '-inf', 'WITHSCORES', 'LIMIT', '0', '1')
  if entry.open + entry.lapsed == 0 then
    entry.unspent, entry.number, entry.ends, entry.refunded, entry.refunded_at = 0, 0, 0, 0, 0
  end
  entry.due = math.min(tonumber(open[2] or MODULUS), -tonumber(lapsed[2] or -MODULUS))
  write_state(key, entry, value, blocked_until, 0)
  entry.is_changed = true
  return value, kind
end

-- Reads a state with holds after lapsed holds were refunded. Returns the value without its block
-- (`false` if there is none), its kind, the time until which it blocks, and the holds. Returns `nil`
-- if the key has a value of another type.
local function read_holds(key)
  local found = redis.pcall('ZREVRANGE', key, '0', '0')
  if found.err and found.err:find('WRONGTYPE', 1, true) then return nil end
  -- If a permission is missing, this fails before anything is written.
  if found.err then call('ZREVRANGE', key, '0', '0') end
  local member = found[1]
  if not member then return false, NONE, 0 end
  local size = #member - HOLDS_FOOT
  if size < 1 or member:byte(-1) ~= HOLDS then return false, FOREIGN, 0 end
  local entry = { member = member }
  entry.rule, entry.p2, entry.p3, entry.p4, entry.unspent, entry.number, entry.open, entry.lapsed,
    entry.refunded, entry.refunded_at, entry.due, entry.ends, entry.lives =
    parse('<BI7I7I7I7I4I4I4I7I7I7I7I7', member, size + 1)
  local divides = entry.p2 > 0 and (entry.p3 > 0 or entry.rule <= SLIDING_LOG)
    and (entry.p4 > 0 or entry.rule ~= TOKEN_BUCKET)
  local value, kind, blocked_until = decode(member:sub(1, size), false)
  if kind == FOREIGN or not RULES[entry.rule] or not divides then return false, FOREIGN, 0 end
  holds_of[key] = entry
  value, kind = settle_due(key, entry, value, kind, blocked_until)
  return value, kind, blocked_until, entry
end

-- Adds an amount to `unspent`.
local function add_unspent(entry, amount)
  entry.unspent = math.max(math.min(entry.unspent + amount, MODULUS), 0)
end

-- Returns the digits of SHA-1 of the key of an id by which a hold is found.
local function hold_key_of(id_key)
  return redis.sha1hex(id_key):sub(1, 16)
end

-- Returns the part of the reply to a charge about the holds on its state:
--   the unspent sum of the open holds; the number of holds that follow (1 byte)
--   if there are any: refunded, refunded_at, the size of the state (4 bytes), the state, and the next
--   holds that lapse, each with lapses_at, taken_at, cost and spent
-- The holds are included if the wait depends on lapses. The core computes the wait from them.
local function open_holds(key, entry, value, counts_on_lapses)
  local unspent = entry and entry.unspent or 0
  if not entry or not counts_on_lapses then return pack('<I7B', unspent, 0) end
  local found = call('ZRANGEBYSCORE', key, '(' .. score(time), '(+inf', 'WITHSCORES', 'LIMIT', '0', 'MAX_COUNTED_LAPSES')
  local counted = {}
  for place = 1, #found, 2 do
    local member = found[place]
    if #member == STATE_HOLD then
      counted[#counted + 1] = pack('<I7', tonumber(found[place + 1])) .. member:sub(HOLD_KEY + 1, HOLD_KEY + 21)
    end
  end
  if not counted[1] then return pack('<I7B', unspent, 0) end
  return pack('<I7BI7I7I4', unspent, #counted, entry.refunded, entry.refunded_at, #value) .. value .. table.concat(counted)
end
