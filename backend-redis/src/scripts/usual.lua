-- Decides the usual batch: acquires of single charges without waits and without blocks after
-- denials, by any rule except the sliding log. Charges that differ only in their keys form a group,
-- and the request contains the numbers of a group once. A state is read and written once,
-- regardless of the number of its charges.
--
-- KEYS: each key once, group after group.
--
-- ARGV[1] contains, for each group: the rule, the cost, the four numbers of the policy, the number
-- of keys, and a flag. If the flag is 1, at least one key of the group is charged more than once,
-- and the number of charges of each key follows.
--
-- ARGV[2]: the time, if a test sets it.
--
-- Reply: VERDICTS, now, and the reply to each key. The reply to a key is UNUSUAL if the key has a
-- value that the rule alone cannot have written, such as a value with a block. The script leaves
-- this key unchanged, and batch.lua must decide all calls on the key.
--
-- Every other reply to a key consists of the replies to the charges of the key. If a charge is
-- admitted, the reply to the charge is the new value. If the charge is denied, the reply is DENIED
-- and the current value. If the charge is denied and the state is empty, the reply is EMPTY.

--- @include lib/now

local request = ARGV[1]
local denied, empty, unusual = string.char(DENIED), string.char(EMPTY), string.char(UNUSUAL)
local answer, n = { pack('<BI7', VERDICTS, now) }, 1

--- @inline lib/read_keys

-- These inputs of the rules (see lib/rules.lua) have the same values for every charge of a usual
-- batch.
local op, max_wait, taken_at, blocked_until = ACQUIRE, 0, nil, 0

local at, k = 1, 0
while at <= #request do
  local rule, cost, p1, p2, p3, p4, count, repeats
  rule, cost, p1, p2, p3, p4, count, repeats, at = parse('<BI7I7I7I7I7I2B', request, at)
  local last = k + count
  if rule == FIXED_WINDOW then
    local rule_kind, size = p4, WINDOW_SIZE
    --- @inline usual.group RULE=rules/fixed_window
  elseif rule == SLIDING_COUNTER then
    local rule_kind, size = COUNTER, COUNTER_SIZE
    --- @inline usual.group RULE=rules/sliding_counter
  elseif rule == TOKEN_BUCKET then
    local rule_kind, size = BUCKET, BUCKET_SIZE
    --- @inline usual.group RULE=rules/token_bucket
  elseif rule == INTERVAL_BUCKET then
    local rule_kind, size = INTERVAL, INTERVAL_SIZE
    --- @inline usual.group RULE=rules/interval_bucket
  else
    local rule_kind, size = CALENDAR, CALENDAR_SIZE
    --- @inline usual.group RULE=rules/quota
  end
end
return table.concat(answer)

--- @section group
--- Charges the keys of a group. The rule of the group replaces RULE.
---
--- Inputs: k (the last key of the previous group), last (the last key of this group), rule_kind and
--- size (of the values of the rule), cost, repeats, p1 to p4.
while k < last do
  k = k + 1
  local value, kind, times = found[k], rule_kind, 1
  if repeats > 0 then times, at = parse('<I2', request, at) end
  local is_usual
  if value then
    is_usual = #value == size and value:byte() == rule_kind
  else
    value, kind, is_usual = nil, NONE, others_absent
  end
  if is_usual then
    local written, written_until, keeps_all = nil, 0, true
    for _ = 1, times do
      local admits, a, b, c, after, expires_at, keeps_ttl
      local d = 0
      --- @inline RULE
      n = n + 1
      if after then
        answer[n], value, kind = after, after, after:byte()
        written, written_until, keeps_all = after, expires_at, keeps_all and keeps_ttl
      elseif admits == nil then
        answer[n] = unusual
        break
      elseif a > 0 or b > 0 then
        answer[n], answer[n + 1] = denied, value
        n = n + 1
      else
        answer[n] = empty
      end
    end
    if written then
      local key, after, expires_at, keeps_ttl = KEYS[k], written, written_until, keeps_all
      --- @inline lib/write.string
    end
  else
    n = n + 1
    answer[n] = unusual
  end
end
