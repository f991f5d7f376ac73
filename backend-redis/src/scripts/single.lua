-- Acquires or peeks one charge, by the rule below. Words that begin with ITS are of the rule:
-- see `wire/scripts.rs`.
--
-- KEYS[1]: the key. ARGV[1]: cost, the four numbers of the policy; then, unless it is an acquire without a
-- wait and a penalty: the operation, the maximum wait, the penalty.
-- Reply: the written value, if that says all; else VERDICTS, now, 0 (1 if the value under the key is not
-- ours); outcome, time until which the key is blocked, three numbers of the rule, time at which the state
-- ends.
local request, key = ARGV[1], KEYS[1]
local cost, p1, p2, p3, p4 = parse('<I7I7I7I7I7', request)
local op, max_wait, penalty, taken_at = ACQUIRE, 0, 0, nil
if #request > USUAL_SIZE then
  op, max_wait, penalty = parse('<BI7I7', request, USUAL_SIZE + 1)
end
if cost == 0 then op = PEEK end

local is_read, value = pcall(call, ITS_READ)
local kind, blocked_until, outcome, is_list = NONE, 0, ALLOWED, false
if is_read and not value then
  value = nil
elseif is_read and ITS_FORM then
  kind, is_list = ITS_KIND, ITS_LIST
else
  -- Any other value: blocked, of another kind, of another type, not ours.
  --> read.lua
  value, kind, blocked_until, is_list = read(key)
  if kind == FOREIGN then return pack('<BI7B', VERDICTS, now, 1) end
  if now < blocked_until then op, outcome = PEEK, BLOCKED end
end

-- The rule: rules.lua says what goes in and comes out.
local admits, a, b, c, after, expires_at, keeps_ttl
local d = 0
--> ITS_RULE
if after then
  --> ITS_WRITE
end
--> ITS_OUTCOME

if admits == nil then
  return pack('<BI7B', VERDICTS, now, 1)
elseif after then
  if STATE_TIME == now and c == 0 then return after end
elseif outcome == ALLOWED and not admits then
  outcome = DENIED
  -- A cost above the limit is not penalised.
  if penalty > 0 and op == ACQUIRE and cost <= p1 then
    blocked_until = now + penalty
    local ends, ttl = blocked_until
    --> ttl.lua
    ttl = math.max(ttl, call('PTTL', key))
    if ITS_END then value = call('GET', key) end
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
return pack('<BI7BBI7I7I7I7I7', VERDICTS, now, 0, outcome, blocked_until, a, b, c, d)
