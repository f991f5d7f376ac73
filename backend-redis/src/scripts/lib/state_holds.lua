--- The holds on a state, for policies whose states store their holds (`refund-lapsed`,
--- `count-failures` and slots).
--- core/src/engine/state_holds.rs does the same for other stores.
---
--- A state with holds is a sorted set, so that an eviction removes the state and its holds
--- together. A call reads and writes only the members of the holds that it needs:
---
---   score         member
---   +inf          the state: the value, the block and the offenses as in a string, then the foot
---   lapses_at     an open hold. The score is the time at which the hold lapses
---   -expires_at   a lapsed hold. The score is the negative time at which the hold expires
---   place / 2^53  a call that waits for slots. The score is between 0 and 1
---
---   | foot | rule 1 | p2 7 | p3 7 | p4 7 | unspent 7 | number 7 | open 4 | lapsed 4 |
---   |      | lapsed_amount 7 | waiters 4 | refunded 7 | refunded_at 7 | due 7 | ends 7 |
---   |      | key_expires_at 7 | HOLDS 1 |
---   | hold | number 7 | key 16 | taken_at 7 | cost 7 | spent 7 | expires_at 7 |
---   |      | refunded 7, if it has lapsed |
---   | call | place 7 | place_ends 7 | lacks_slots 1 |
---
---   rule, p2 …     the rule that wrote the state last, and its numbers. COUNTS_FAILURES is added
---                  to the rule if the policy of the last hold counts failures. Then lapsed holds
---                  stay charged
---   unspent        the sum of the unspent parts of the open holds
---   number         in the foot: the last number of a hold or a waiting call; in a hold: its number
---   open, lapsed   the number of open holds and the number of lapsed holds
---   lapsed_amount  the sum of the amounts that were refunded for the lapsed holds, which is the
---                  number of slots that their former holders can still revive
---   waiters        the number of the waiting calls
---   place_ends     the time at which the place of the call ends, unless the call is sent again
---   lacks_slots    1 if the call lacked slots of this state when it was last sent, or 0
---   refunded       in the foot: the sum of the refunds that possibly refunded an open hold
---   refunded       in a lapsed hold: the amount that was refunded when the hold lapsed
---   refunded_at    the time of the last refund
---   due            a time before which no hold lapses or expires
---   ends           the time at which the last hold expires
---   key_expires_at the time until which the key lives at least
---   key            the first 16 hexadecimal digits of SHA-1 of the key of the hold's id
---
--- The rule in the foot refunds lapsed holds. The number in a hold is big-endian, so that the older
--- of two holds that lapse at the same time is first. For slots, the number is the fence of the
--- grant. A number is at least the time of the hold, and the numbers of a state rise. The places of
--- waiting calls are numbers too. core/src/engine/queue.rs describes the queue.
---
--- A script without this file treats a sorted set as a foreign value and does not change it.

-- The time of the call. While the script refunds a lapsed hold, `now` is the time of the lapse.
local current_time = now

-- The place of the call in the queues of its slots, or 0 if the call has no place.
local own_place = 0

-- The feet of the states that the script has read, by key. A foot is the fixed-size end of the
-- state. Its table also contains changes that are not written yet: the hold to add (`new_hold`,
-- with its score `new_score`), the hold to remove (`old_hold`), and the waiting call to add
-- (`new_waiter`, with its place `new_place`).
local feet_by_key = {}

-- A log with holds is one string, so its number of records is bounded. If a log has the maximum
-- number of records, a charge moves the newest record to the current time instead of adding a
-- record.
local rule_without_holds = RULES[SLIDING_LOG]
RULES[SLIDING_LOG] = function(
  value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
  if p4 == 1 and feet_by_key[key] then
    p4, max_records = 0, math.min(max_records or MAX_RECORDS_WITH_HOLDS, MAX_RECORDS_WITH_HOLDS)
  end
  return rule_without_holds(
    value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
end

local function score(number)
  return string.format('%.0f', number)
end

-- Returns the score of a place in a queue. A place is less than 2^53, so the division is exact.
local function place_score(place)
  return string.format('%.17g', place / MODULUS)
end

-- Returns the waiting call with a place, and whether its place has not ended. Returns `nil` if the
-- queue has no such place.
local function find_waiter(key, place)
  local found = place > 0 and call('ZRANGEBYSCORE', key, place_score(place), place_score(place))
  local member = found and found[1]
  if member then return member, parse('<I7', member, HOLD_NUMBER + 1) > current_time end
end

-- Returns whether a waiting call with a lower place lacks slots of the state. All places are before
-- a call without a place, and before a call whose place has ended or never existed.
local function is_anyone_ahead(key)
  local _, has_place = find_waiter(key, own_place)
  local own_score, from, ahead = has_place and place_score(own_place) or '1', 0, nil
  repeat
    ahead = call('ZRANGEBYSCORE', key, '(0', '(' .. own_score, 'LIMIT', from, '16')
    for _, member in ipairs(ahead) do
      local place_ends, lacks_slots = parse('<I7B', member, HOLD_NUMBER + 1)
      if place_ends > current_time and lacks_slots == 1 then return true end
    end
    from = from + 16
  until #ahead < 16
  return false
end

-- Slots are refused while another call waits for them that goes first.
local slots_without_queue = RULES[CONCURRENT]
RULES[CONCURRENT] = function(
  value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
  local foot = feet_by_key[key]
  if foot and foot.waiters > 0 and cost > 0 and (op == ACQUIRE or op == PEEK)
    and is_anyone_ahead(key) then
    local is_valid, a, b, c, d = slots_without_queue(value, kind, 0, PEEK, 0, nil, p1, p2, p3, p4)
    if is_valid == nil then return nil end
    return false, a, b, c, d
  end
  return slots_without_queue(
    value, kind, cost, op, max_wait, taken_at, p1, p2, p3, p4, key, is_list, max_records)
end

-- Removes a place from the queue of a state, and the places at the start of the queue that have
-- ended. Returns whether the place had not ended.
local function leave(key, foot, place)
  if foot.waiters == 0 then return false end
  local waiter, is_waiting = find_waiter(key, place)
  if waiter then
    call('ZREM', key, waiter)
    foot.waiters = math.max(foot.waiters - 1, 0)
  end
  while foot.waiters > 0 do
    local first = call('ZRANGEBYSCORE', key, '(0', '(1', 'LIMIT', '0', '1')[1]
    if not first then
      foot.waiters = 0
    elseif parse('<I7', first, HOLD_NUMBER + 1) > current_time then
      break
    else
      call('ZREM', key, first)
      foot.waiters = foot.waiters - 1
    end
  end
  foot.is_changed = true
  return is_waiting
end

-- Publishes the places of the first calls that can possibly take the free slots of a state. Their
-- processes then send these calls immediately. If the server does not support the command, or does
-- not permit it, the calls are only sent later.
local function wake_waiters(key, foot, value, limit)
  local free = limit - (value:byte() == SLOTS and parse('<I7', value, 2) or 0)
  local places = {}
  for _, member in ipairs(call('ZRANGEBYSCORE', key, '(0', '(1', 'LIMIT', '0', 'MAX_WOKEN')) do
    local place_ends, lacks_slots = parse('<I7B', member, HOLD_NUMBER + 1)
    if #places < free and place_ends > current_time and lacks_slots == 1 then
      places[#places + 1] = member:sub(1, HOLD_NUMBER)
    end
  end
  if places[1] then redis.pcall('SPUBLISH', key, table.concat(places)) end
end

-- Returns whether the state must keep the last fence, because the clock has not passed it.
local function keeps_fence(foot)
  return foot.rule == CONCURRENT and foot.number >= current_time
end

-- Writes a state with holds. `expires_at` is the time until which the state matters. Setting the
-- expiry of a key costs as much as writing the key, so the key gets a life that is a quarter longer
-- than necessary.
local function write_state(key, foot, value, blocked_until, offenses, expires_at)
  local ends, ttl =
    math.max(expires_at, blocked_until, forgotten_at(offenses), foot.ends, foot.number + 1)
  local is_short = ends > foot.key_expires_at
  if is_short then
    ends = math.min(ends + (ends - now - (ends - now) % 4) / 4, MODULUS)
    foot.key_expires_at = ends
  end
  local member = blocking(value, blocked_until, offenses)
    .. pack(FOOT_LAYOUT, foot.rule + (foot.counts_failures and COUNTS_FAILURES or 0), foot.p2, foot.p3, foot.p4, foot.unspent,
      foot.number, foot.open, foot.lapsed, foot.lapsed_amount, foot.waiters, foot.refunded,
      foot.refunded_at, foot.due, foot.ends, foot.key_expires_at, HOLDS)
  if foot.new_hold then
    call('ZADD', key, '+inf', member, foot.new_score, foot.new_hold)
  elseif member ~= foot.member then
    call('ZADD', key, '+inf', member)
  end
  local old_member = member ~= foot.member and foot.member
  if old_member and foot.old_hold then
    call('ZREM', key, old_member, foot.old_hold)
  elseif old_member or foot.old_hold then
    call('ZREM', key, old_member or foot.old_hold)
  end
  if foot.new_waiter then call('ZADD', key, place_score(foot.new_place), foot.new_waiter) end
  foot.member, foot.new_hold, foot.old_hold, foot.new_waiter = member, nil, nil, nil
  if is_short then
    --- @inline lib/ttl.text
    call('PEXPIRE', key, ttl)
  end
end

-- Writes a state and its holds. If no hold, no waiting call and no fence remains, the function
-- writes the state as a string. If also no charge, no block and no offense remains, the function
-- removes the key.
local function write_holds(key, foot, value, blocked_until, offenses, expires_at)
  if foot.open + foot.lapsed > 0 then
    return write_state(key, foot, value, blocked_until, offenses, expires_at)
  elseif foot.waiters > 0 or keeps_fence(foot) then
    foot.due = MODULUS
    return write_state(key, foot, value, blocked_until, offenses, expires_at)
  end
  if blocked_until == 0 and not offenses and value:byte() == NONE then return call('UNLINK', key) end
  local ends, ttl =
    math.max(foot.key_expires_at, expires_at, blocked_until, forgotten_at(offenses))
  --- @inline lib/ttl.text
  call('PSETEX', key, ttl, blocking(value, blocked_until, offenses))
end

-- Refunds the unspent part of a charge, by the rule that wrote the state. Earlier refunds that
-- possibly refunded the same part are subtracted (see lib/settlement.refunds). Returns the new
-- state, and the refunded amount.
local refund_rest
refund_rest = function(foot, value, kind, key, cost, taken_at, original_cost)
  local rule, p2, p3, p4 = foot.rule, foot.p2, foot.p3, foot.p4
  local function apply_rule(rest_cost, op)
    return RULES[rule](
      value, kind, rest_cost, op, original_cost, taken_at, math.huge, p2, p3, p4, key, false)
  end
  local _, a, b, c = apply_rule(0, PEEK)
  local before, unit = held(rule, a, b, c, p2)
  local _, _, _, _, _, after = apply_rule(cost, UNDO)
  if after == nil then return value, kind, 0 end
  local value_before, kind_before = value, kind
  value = after or string.char(NONE)
  kind = value:byte()
  _, a, b, c = apply_rule(0, PEEK)
  local amount = before - held(rule, a, b, c, p2)
  amount = (amount - amount % unit) / unit
  if foot.refunded == 0 or foot.refunded_at < taken_at then return value, kind, amount end
  local counted = math.min(foot.refunded, amount)
  foot.refunded = foot.refunded - counted
  value, kind = value_before, kind_before
  if amount == counted then return value, kind, 0 end
  return refund_rest(foot, value, kind, key, amount - counted, taken_at, original_cost - counted)
end

-- Removes the member of a lapsed hold from the sums in a foot.
local function forget_lapsed(foot, member)
  foot.lapsed = math.max(foot.lapsed - 1, 0)
  if #member == STATE_HOLD + 7 then
    foot.lapsed_amount = math.max(foot.lapsed_amount - parse('<I7', member, STATE_HOLD + 1), 0)
  end
end

-- Refunds each lapsed hold as of the time of its lapse, and removes the expired holds. Returns the
-- new state.
local function settle_due(key, foot, value, kind, blocked_until, offenses)
  if foot.due > current_time then return value, kind end
  for _, member in ipairs(call('ZRANGEBYSCORE', key, score(-current_time), '0')) do
    call('ZREM', key, member)
    forget_lapsed(foot, member)
  end
  local due = call('ZRANGEBYSCORE', key, '1', score(current_time), 'WITHSCORES')
  for place = 1, #due, 2 do
    local member, lapses_at = due[place], tonumber(due[place + 1])
    call('ZREM', key, member)
    if #member == STATE_HOLD then
      local taken_at, cost, spent, expires_at = parse('<I7I7I7I7', member, HOLD_KEY + 1)
      local refunded = 0
      if spent < cost and not foot.counts_failures then
        now = lapses_at
        value, kind, refunded = refund_rest(foot, value, kind, key, cost - spent, taken_at, cost)
        now = current_time
      end
      foot.open = math.max(foot.open - 1, 0)
      foot.unspent = math.max(foot.unspent - math.max(cost - spent, 0), 0)
      if expires_at > current_time then
        call('ZADD', key, score(-expires_at), member .. pack('<I7', refunded))
        foot.lapsed = foot.lapsed + 1
        foot.lapsed_amount = math.min(foot.lapsed_amount + refunded, MODULUS)
      end
    end
  end
  local open = call(
    'ZRANGEBYSCORE', key, '(' .. score(current_time), '(+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  local lapsed = call('ZREVRANGEBYSCORE', key, '(0', '-inf', 'WITHSCORES', 'LIMIT', '0', '1')
  if foot.open + foot.lapsed == 0 then
    foot.unspent, foot.lapsed_amount, foot.refunded, foot.refunded_at = 0, 0, 0, 0
    if foot.waiters == 0 then
      foot.ends = 0
      if not keeps_fence(foot) then foot.number = 0 end
    end
  end
  foot.due = math.min(tonumber(open[2] or MODULUS), -tonumber(lapsed[2] or -MODULUS))
  write_state(key, foot, value, blocked_until, offenses, 0)
  foot.is_changed = true
  return value, kind
end

-- Reads a state with holds and refunds the lapsed holds. Returns the value of the state without its
-- block (`false` if there is no value), the kind of the value, the time until which the value
-- blocks, the foot, and the offenses. Returns `nil` if the key has a value of another type.
local function read_holds(key)
  local found = redis.pcall('ZREVRANGE', key, '0', '0')
  if found.err and found.err:find('WRONGTYPE', 1, true) then return nil end
  -- If the user lacks the permission for ZREVRANGE, the script fails here, before it has written
  -- anything.
  if found.err then call('ZREVRANGE', key, '0', '0') end
  local member = found[1]
  if not member then return false, NONE, 0 end
  local size = #member - HOLDS_FOOT
  if size < 1 or member:byte(-1) ~= HOLDS then return false, FOREIGN, 0 end
  local foot = { member = member }
  foot.rule, foot.p2, foot.p3, foot.p4, foot.unspent, foot.number, foot.open, foot.lapsed,
    foot.lapsed_amount, foot.waiters, foot.refunded, foot.refunded_at, foot.due, foot.ends,
    foot.key_expires_at = parse(FOOT_LAYOUT, member, size + 1)
  foot.counts_failures = foot.rule >= COUNTS_FAILURES
  foot.rule = foot.rule % COUNTS_FAILURES
  local is_rule_valid = (foot.p2 > 0 or foot.rule == QUOTA) and (foot.p3 > 0 or foot.rule <= SLIDING_LOG or foot.rule == CONCURRENT)
    and (foot.p4 > 0 or foot.rule ~= TOKEN_BUCKET) and foot.rule ~= FAIR_POOL
  local value, kind, blocked_until, offenses = decode(member:sub(1, size), false)
  if kind == FOREIGN or not RULES[foot.rule] or not is_rule_valid then return false, FOREIGN, 0 end
  feet_by_key[key] = foot
  value, kind = settle_due(key, foot, value, kind, blocked_until, offenses)
  return value, kind, blocked_until, foot, offenses
end

-- Adds an amount to the unspent sum in a foot.
local function add_unspent(foot, amount)
  foot.unspent = math.max(math.min(foot.unspent + amount, MODULUS), 0)
end

-- Returns the first digits of SHA-1 of the key of an id. Each hold in a state contains these
-- digits, so that a call can find the hold of its id.
local function hash_id_key(id_key)
  return redis.sha1hex(id_key):sub(1, 16)
end

-- Returns the part of the reply to a charge that describes the holds on the state of the charge. It
-- begins with the unspent sum of the open holds, and the number of holds that follow (1 byte). If
-- holds follow, the next parts are refunded and refunded_at of the foot, the size of the state (4
-- bytes), and the state. Then each hold follows, with lapses_at, taken_at, cost and spent.
--
-- If the wait depends on lapses, the reply contains the holds that lapse next, from which the core
-- computes the wait. For slots, the reply contains the first of these holds. If the policy counts
-- failures, the wait does not depend on lapses, because a lapse refunds nothing.
local function open_holds(key, foot, value, waits_for_lapses)
  local unspent = foot and foot.unspent or 0
  if not foot or not waits_for_lapses or foot.counts_failures then return pack('<I7B', unspent, 0) end
  local found = call('ZRANGEBYSCORE', key, '(' .. score(current_time), '(+inf', 'WITHSCORES',
    'LIMIT', '0', foot.rule == CONCURRENT and '1' or 'MAX_COUNTED_LAPSES')
  local counted = {}
  for place = 1, #found, 2 do
    local member = found[place]
    if #member == STATE_HOLD then
      counted[#counted + 1] =
        pack('<I7', tonumber(found[place + 1])) .. member:sub(HOLD_KEY + 1, HOLD_KEY + 21)
    end
  end
  if not counted[1] then return pack('<I7B', unspent, 0) end
  return pack('<I7BI7I7I4', unspent, #counted, foot.refunded, foot.refunded_at, #value) .. value
    .. table.concat(counted)
end
