--- Decides a call on one charge of slots in the usual case, without the functions and tables of the
--- general scripts. In every other case, these sections change nothing, and the general script
--- decides the call. lib/state_holds.lua describes the state.
---
--- In the usual case, no hold lapses or expires now, no call waits for slots, and the subject is
--- not blocked. A new hold is admitted, and a hold that is extended or settled is open.

--- @section read
--- Reads a state of slots with one command.
---
--- Input: key. Outputs: is_usual, old_foot (the member of the state, or `nil` if the key is
--- absent), in_use (the number of slots), and the numbers of the foot.
local found = redis.pcall('ZREVRANGE', key, '0', '0')
local is_usual, old_foot = not found.err, found[1]
local in_use, unspent, number, open, lapsed, lapsed_amount, due, last_ends, key_ends =
  0, 0, 0, 0, 0, 0, MODULUS, 0, 0
if old_foot then
  is_usual = #old_foot == SLOTS_SIZE + HOLDS_FOOT and old_foot:byte() == SLOTS
    and old_foot:byte(-1) == HOLDS
  if is_usual then
    local old_rule, old_p2, waiters
    _, in_use, old_rule, old_p2, _, _, unspent, number, open, lapsed, lapsed_amount, waiters, _, _, due,
      last_ends, key_ends = parse(SLOTS_LAYOUT, old_foot)
    is_usual = in_use > 0 and in_use <= MAX_EXACT and old_rule == CONCURRENT and old_p2 > 0
      and waiters == 0 and due > now
  end
end

--- @section write
--- Writes the state. Adds a hold and removes a hold.
---
--- Inputs: the outputs of the section `read`, p2 to p4, new_hold with its new_score (or `nil`), and
--- old_hold (the hold to remove, or `nil`).
local ends, ttl = math.max(last_ends, number + 1)
local is_short = ends > key_ends
if is_short then
  ends = math.min(ends + (ends - now - (ends - now) % 4) / 4, MODULUS)
  key_ends = ends
end
local foot = pack(SLOTS_LAYOUT, SLOTS, in_use, CONCURRENT, p2, p3, p4, unspent, number, open, lapsed,
  lapsed_amount, 0, 0, 0, due, last_ends, key_ends, HOLDS)
if new_hold then
  call('ZADD', key, '+inf', foot, string.format('%.0f', new_score), new_hold)
else
  call('ZADD', key, '+inf', foot)
end
if old_foot == foot then old_foot = nil end
if old_foot and old_hold then
  call('ZREM', key, old_foot, old_hold)
elseif old_foot or old_hold then
  call('ZREM', key, old_foot or old_hold)
end
if is_short then
  --- @inline lib/ttl.text
  call('PEXPIRE', key, ttl)
end

--- @section hold
--- Makes a hold of slots, and ends the script.
---
--- Inputs: id_key, id, id_millis, minimum_and_costs.
local key = KEYS[1]
local _, count, _, _, rule, flags, cost, _, limit, p2, p3, p4 =
  parse('<BBI7I2BBI7I7I7I7I7I7', ARGV[1])
if count == 1 and rule == CONCURRENT and flags < CHECK_ONLY and cost > 0 then
  --- @inline lib/usual_slots.read
  in_use = in_use + cost
  if is_usual and in_use + lapsed_amount <= limit then
    local life, old_hold = parse('<I7', id, FINGERPRINT + 1), nil
    local new_score, held_and_spent, epochs = now + life / 2, pack('<I7I7', cost, 0), NO_EPOCH
    number = math.max(now, number + 1)
    local new_hold = pack('>I7', number) .. redis.sha1hex(id_key):sub(1, 16)
      .. pack('<I7I7I7I7', now, cost, 0, now + life)
    local reply = pack('<BI7BBI7I7I7I7I7I7BI7', VERDICTS, now, WITH_HOLDS, ALLOWED, 0, 0, in_use, 0, 0,
      unspent, 0, number)
    open, unspent = open + 1, math.min(unspent + cost, MODULUS)
    due, last_ends = math.min(due, new_score), math.max(last_ends, now + life)
    --- @inline lib/usual_slots.write
    --- @inline lib/record.write_hold
    return reply
  end
end

--- @section settle
--- Settles or extends a hold of slots, and ends the script.
---
--- Inputs: the outputs of lib/settlement.read, op, count, request and id.
local key = KEYS[1]
local _, rule, _, _, _, _, p2, p3, p4 = parse('<I2BBI7I7I7I7I7I7', request, CALL_HEAD + 1)
if count == 1 and rule == CONCURRENT then
  --- @inline lib/usual_slots.read
  if is_usual and old_foot then
    -- The member of the hold, which follows from the record of the hold.
    local cost = parse('<I7', record, held_at)
    local own_number = parse('<I7', record, replies_at + reply_size - HOLD_NUMBER)
    local named = pack('>I7', own_number) .. redis.sha1hex(id_key):sub(1, 16)
    local old_hold = named .. pack('<I7I7I7I7', taken_at, cost, 0, taken_at + life)
    local is_last = open == 1 and lapsed == 0 and in_use == cost and number < now
    local new_hold, new_score, amount = nil, nil, nil
    if op == EXTEND and call('ZSCORE', key, old_hold) then
      local span = parse('<I7', id, FINGERPRINT + 1) / 2
      new_score = math.max(lapses_at, now + span)
      local expires_at = math.max(taken_at + life, new_score + span)
      new_hold = named .. pack('<I7I7I7I7', taken_at, cost, 0, expires_at)
      last_ends = math.max(last_ends, expires_at)
      if new_hold == old_hold then old_hold = nil end
      amount = ''
    elseif op == SETTLE and (is_last or open > 1 and in_use > cost)
      and call('ZREM', key, old_hold) == 1 then
      open, in_use, unspent = open - 1, in_use - cost, math.max(unspent - cost, 0)
      old_hold, amount = nil, pack('<I7B', cost, 0)
    end
    if amount then
      local epoch_values, totals = {}, spent
      local reply = pack('<BI7BBI7I7I7I7I7', VERDICTS, now, WITH_HOLDS, ALLOWED, 0, 0, in_use, 0, 0)
        .. amount .. pack('<I7B', unspent, 0)
      if in_use == 0 then
        call('UNLINK', key)
      else
        --- @inline lib/usual_slots.write
      end
      --- @inline lib/settlement.write
      return reply
    end
  end
end
