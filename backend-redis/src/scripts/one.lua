-- One charge, to be acquired or peeked at, by the rule below. Words that begin with ITS are of
-- this rule: see `wire/scripts.rs`.
--
-- ARGV[1]: cost, four numbers of the rule; then, if it is not just an acquire: what to do, longest
-- wait, penalty.
-- Answer: the value that was written, if that says all; else VERDICTS, now, 0 (or 1: what lies under
-- the key is not ours); outcome, until when it is blocked, three numbers of the rule, when the state ends.
local request, key = ARGV[1], KEYS[1]
local cost, p1, p2, p3, p4 = parse('<I7I7I7I7I7', request)
local does, max_wait, penalty = ACQUIRE, 0, 0
if #request > USUAL_SIZE then
  does, max_wait, penalty = parse('<BI7I7', request, USUAL_SIZE + 1)
end
if cost == 0 then does = PEEK end

local is_read, value = pcall(call, ITS_READ)
local kind, blocked_until, outcome, is_list = NONE, 0, ALLOWED, false
if is_read and not value then
  value = nil
elseif is_read and ITS_FORM then
  kind, is_list = ITS_KIND, ITS_LIST
else
  -- All that is not the usual is looked at closely.
  --> read.lua
  value, kind, blocked_until, is_list = read(key)
  if kind == FOREIGN then return pack('<BI7B', VERDICTS, now, 1) end
  if now < blocked_until then does, outcome = PEEK, BLOCKED end
end

-- What the rule says: see `rules.lua`.
local admits, a, b, c, after, lives_until, kept
local d = 0
--> ITS_RULE

if after then
  --> ITS_WRITE
  if ITS_TIME == now and c == 0 then return after end
elseif admits == nil then
  return pack('<BI7B', VERDICTS, now, 1)
elseif outcome == ALLOWED and not admits then
  outcome = DENIED
  -- A cost that could never pass does not shut out.
  if penalty > 0 and does == ACQUIRE and cost <= p1 then
    blocked_until = now + penalty
    local ends, life = blocked_until
    --> life.lua
    life = math.max(life, call('PTTL', key))
    if ITS_END then value = call('GET', key) end
    value = value or string.char(NONE)
    value = string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
    if is_list then
      call('LSET', key, '-1', value)
      call('PEXPIRE', key, life)
    else
      call('PSETEX', key, life, value)
    end
  end
end
return pack('<BI7BBI7I7I7I7I7', VERDICTS, now, 0, outcome, blocked_until, a, b, c, d)
