-- Decides a call of one charge by one rule. The call is an acquire, a reservation or a peek.
--
-- KEYS[1]: the key of the state.
--
-- ARGV[1]: the cost and the four numbers of the policy. An acquire without a wait and without a
-- penalty has only these numbers. For every other call, the operation, the maximum wait and the
-- penalty follow. The penalty is the length of the block after a denial, or 0.
--
-- ARGV[2]: the time, if a test sets it.
--
-- Reply: only the written value, if the client can compute the whole reply from this value. If the
-- key has a foreign value, the reply is VERDICTS, now and 1.
--
-- Every other reply consists of VERDICTS, now, 0, the outcome, the time until which the key is
-- blocked, three numbers of the rule (a, b, c), and the time at which the state ends (d). If the
-- value of the key is a quota of the kind DRIFT or TOPPED_UP, WITH_VALUE and this value precede the
-- outcome.

--- @include lib/now
local request, key = ARGV[1], KEYS[1]
local cost, p1, p2, p3, p4 = parse('<I7I7I7I7I7', request)
local op, max_wait, penalty, taken_at = ACQUIRE, 0, 0, nil
if #request > USUAL_SIZE then
  op, max_wait, penalty = parse('<BI7I7', request, USUAL_SIZE + 1)
end
if cost == 0 then op = PEEK end

--- @when string
local is_read, value = pcall(call, 'GET', key)
--- @end
--- @when pool
local own_id, own_numbers = pack('<I7I7', p3, p4), ''
local is_read, value = pcall(call, 'HMGET', key, '', own_id)
if is_read then
  value, own_numbers = value[1], value[2] or ''
  is_read = value and #value == POOL_HEAD
end
--- @end
--- @when log_string
-- Read only the end of the log, which is usually sufficient for a decision.
local is_read, value = pcall(call, 'GETRANGE', key, '-LOG_END', '-1')
--- @end
--- @when log_list
local is_read, value = pcall(call, 'LINDEX', key, '-1')
--- @end
local kind, blocked_until, outcome, is_list = NONE, 0, ALLOWED, false
if is_read and not value then
  value = nil
--- @when string
elseif is_read and #value == VALUE_SIZE and value:byte() == VALUE_KIND then
  kind = VALUE_KIND
--- @end
--- @when pool
elseif is_read and value:byte() == POOL then
  kind = POOL
--- @end
--- @when log_string
elseif is_read and #value == LOG_END and value:byte(-1) == LOG then
  kind = LOG
--- @end
--- @when log_list
elseif is_read and #value > LOG_END and (#value - LOG_HEAD - LOG_END) % RECORD == 0
  and value:byte() == LOG and value:byte(-1) == LOG then
  kind, is_list = LOG, true
--- @end
else
  --- @include lib/value.read
  -- The value has a block, has another kind or type, or is foreign.
  value, kind, blocked_until, is_list = read(key)
  if kind == FOREIGN then return pack('<BI7B', VERDICTS, now, 1) end
  if now < blocked_until then op, outcome = PEEK, BLOCKED end
end

local admits, a, b, c, after, expires_at, keeps_ttl
local d = 0
--- @inline RULE
--- @when quota
local state = after or value
local first = state and state:byte() >= DRIFT and string.char(WITH_VALUE) .. state or ''
--- @end
if after then
  --- @when string
  --- @inline lib/write.string
  --- @end
  --- @when pool
  --- @inline lib/write.pool
  --- @end
  --- @when log_string log_list
  --- @inline lib/write.log
  --- @end
end
--- @when id
-- A refused call gets no record. A shadow that denies the charge does not refuse the call.
is_done = admits and outcome == ALLOWED or admits ~= nil and id:byte(-1) == SHADOW
--- @end
--- @when hold
-- The held and the spent cost of the charge. If the call is refused, `held_and_spent` stays `nil`.
-- A shadow that denies the charge does not refuse the call.
if admits and outcome == ALLOWED then
  held_and_spent = pack('<I7I7', cost, 0)
elseif admits ~= nil and id:byte(ID_REQUEST) == SHADOW then
  held_and_spent = pack('<I7I7', NOT_COUNTED, 0)
end
--- @end

if admits == nil then
  return pack('<BI7B', VERDICTS, now, 1)
elseif after then
  --- @when token_bucket
  -- The value contains the time of its last write. If the last write was now and there is no wait,
  -- the client can compute the whole reply from the value.
  if time == now and c == 0 then return after end
  --- @end
  --- @when pool
  -- The value then contains the demand of a refused call.
  if not admits then outcome = DENIED end
  --- @end
elseif outcome == ALLOWED and not admits then
  outcome = DENIED
  -- A charge with a cost above the limit is denied, but causes no penalty (no block).
  if penalty > 0 and op == ACQUIRE and cost <= p1 then
    blocked_until = now + penalty
    local ends, ttl = blocked_until
    --- @inline lib/ttl.text
    ttl = math.max(ttl, call('PTTL', key))
    --- @when log_string
    -- The script has read only the end of the log, but must write the whole log together with the
    -- block.
    if value and #value == LOG_END then value = call('GET', key) end
    --- @end
    value = value or string.char(NONE)
    value = string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
    if is_list then
      call('LSET', key, '-1', value)
      call('PEXPIRE', key, ttl)
    else
      call('PSETEX', key, ttl, value)
    end
  end
end
--- @when quota
if first ~= '' then
  return pack('<BI7B', VERDICTS, now, 0) .. first
    .. pack('<BI7I7I7I7I7', outcome, blocked_until, a, b, c, d)
end
--- @end
return pack('<BI7BBI7I7I7I7I7', VERDICTS, now, 0, outcome, blocked_until, a, b, c, d)
