-- Settles or extends a hold of one charge, as settle.lua does. The script has only the rule of this
-- charge.
--
-- KEYS: the key of the charge, the key of its epoch, the key of the id.
--
-- ARGV[1]: the request of single.lua. The cost is the actual total cost.
--
-- ARGV[2]: the head of the record, as in settle.lua.
--
-- ARGV[3]: the time, if a test sets it.
--
-- Reply: the reply of settle.lua.
local key, epoch_key, id_key, id = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
-- Move the time of a test from ARGV[3] to ARGV[2], because lib/now reads ARGV[2].
ARGV[2] = ARGV[3]
--- @include lib/now

local total, p1, p2, p3, p4, op = parse('<I7I7I7I7I7B', ARGV[1])
--- @inline lib/settlement.read

--- @include lib/levels
--- @include lib/value.block

local function apply_rule(value, kind, cost, op, max_wait, p1)
  local admits, a, b, c, after, expires_at, keeps_ttl
  local d = 0
  --- @inline RULE
  return admits, a, b, c, d, after, expires_at, keeps_ttl
end

local is_read, value = pcall(call, 'GET', key)
local kind, blocked_until = NONE, 0
if is_read and not value then
  value = nil
elseif is_read and #value == VALUE_SIZE and value:byte() == VALUE_KIND then
  kind = VALUE_KIND
else
  --- @include lib/value.read
  -- The value has a block, has another kind or type, or is foreign.
  value, kind, blocked_until = read(key)
  if kind == FOREIGN then return pack('<BI7B', VERDICTS, now, 1) end
end

local rule, held_cost, spent_cost = RULE_CODE, parse('<I7I7', record, held_at)
local place, epoch_values = 1, {}
--- @inline lib/epoch.read
local admits, a, b, c, d = apply_rule(value, kind, 0, PEEK, 0, p1)
if admits == nil then return pack('<BI7B', VERDICTS, now, 1) end
--- @inline lib/settlement.change
--- @inline lib/settlement.refunds
if refunds_after then call('SET', epoch_key, refunds_after, 'KEEPTTL') end
local changed_by, current = 0, value
if cost > 0 then
  local before, unit = held(rule, a, b, c, p2)
  local _, _, _, _, _, after, expires_at, keeps_ttl =
    apply_rule(value, kind, cost, change, original_cost, limit)
  if after ~= nil then
    -- Write the new state. Keep a block that has not ended.
    if blocked_until <= now then blocked_until = 0 end
    -- An undo never makes a state live longer, so the current expiry of the key suffices.
    keeps_ttl = keeps_ttl or change == UNDO
    local state = after or string.char(NONE)
    current = state
    admits, a, b, c, d = apply_rule(state, state:byte(), 0, PEEK, 0, p1)
    changed_by = math.abs(held(rule, a, b, c, p2) - before)
    changed_by = (changed_by - changed_by % unit) / unit
    if after or blocked_until > 0 then
      expires_at = math.max(after and expires_at or 0, blocked_until)
      after = blocking(state, blocked_until)
      --- @inline lib/write.string
    else
      call('UNLINK', key)
    end
  end
end

local outcome = now < blocked_until and BLOCKED or admits and ALLOWED or DENIED
local reply = pack('<BI7B', VERDICTS, now, 0)
--- @when quota
if current and current:byte() >= DRIFT then reply = reply .. string.char(WITH_VALUE) .. current end
--- @end
reply = reply .. pack('<BI7I7I7I7I7', outcome, blocked_until, a, b, c, d)
if op ~= EXTEND then
  local is_charged = changed_by > 0 and change == ACQUIRE
  reply = reply .. pack('<I7B', changed_by, is_charged and 1 or 0)
end
local totals = pack('<I7', math.max(spent_cost, total))
--- @inline lib/settlement.write
return reply
