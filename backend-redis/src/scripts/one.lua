-- One charge, to be acquired or peeked at, by `rule`; its values are of ITS_KIND and ITS_SIZE (a log's
-- at least).
--
-- ARGV[1]: what to do, longest wait, cost, penalty, four numbers of the rule.
-- Answer: now, 0 (or 1: what lies under the key is not ours); outcome, until when it is blocked,
-- three numbers of the rule.
local does, max_wait, cost, penalty, p1, p2, p3, p4 = parse('<BI7I7I7I7I7I7I7', ARGV[1])
local key = KEYS[1]
local kind, blocked_until, outcome, is_list = NONE, 0, ALLOWED, ITS_KIND == LOG and p4 == 1
local value
if is_list then value = redis.pcall('LINDEX', key, -1) else value = redis.pcall('GET', key) end
if not value then
  value, is_list = nil, false
elseif (#value == ITS_SIZE or ITS_KIND == LOG and #value % RECORD == VALUE_HEAD % RECORD)
  and #value >= ITS_SIZE and value:byte() == ITS_KIND then
  kind = ITS_KIND
else
  -- All that is not the usual is looked at closely.
  --> read.lua
  value, kind, blocked_until, is_list = read_on(key, value, is_list)
  if kind == FOREIGN then return pack('<I7B', now, 1) end
  if now < blocked_until then does, outcome = PEEK, BLOCKED end
end

local admits, a, b, c, after, recovers_at, plan =
  rule(value, kind, cost, cost > 0 and does or PEEK, max_wait, p1, p2, p3, p4, key)
if after then
  if plan then
    write_list(key, after, plan, is_list, life_until(recovers_at))
  else
    call('PSETEX', key, life_until(recovers_at), after)
  end
elseif admits == nil then
  return pack('<I7B', now, 1)
elseif outcome == ALLOWED and not admits then
  outcome = DENIED
  -- A cost that could never pass does not shut out.
  if does == ACQUIRE and penalty > 0 and cost > 0 and cost <= p1 then
    blocked_until = now + penalty
    local life = math.max(life_until(blocked_until), call('PTTL', key))
    value = value or string.char(NONE)
    value = string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
    if is_list then
      call('LSET', key, -1, value)
      call('PEXPIRE', key, life)
    else
      call('PSETEX', key, life, value)
    end
  end
end
return pack('<I7BBI7I7I7I7', now, 0, outcome, blocked_until, a, b, c)
