-- Decides the usual batch: acquires of single charges, without waits and penalties, by any rule but a log. Numbers
-- that charges have in common are sent once, and a state is read and written once, however often it is charged.
--
-- KEYS: each key once, those of a group one after the other. ARGV[1], for each group of charges: rule, cost, four
-- numbers of the policy, number of keys, whether any of them is charged more than once; then for each key
-- how often.
-- Reply: VERDICTS, now; for each key UNUSUAL if its value is none that the rule alone has written, which is left as it
-- is, to batch.lua; else for each charge: if it is admitted, the value that it leads to; if it is denied, DENIED and
-- the value as it is, or EMPTY if there is none that counts.
--> head.lua

local request = ARGV[1]
local denied, empty, unusual = string.char(DENIED), string.char(EMPTY), string.char(UNUSUAL)
local answer, n = { pack('<BI7', VERDICTS, now) }, 1

--> read_all.lua

-- What the rules are given besides the charge: see rules.lua.
local op, max_wait, taken_at, blocked_until = ACQUIRE, 0, nil, 0

local at, k = 1, 0
while at <= #request do
  local rule, cost, p1, p2, p3, p4, count, repeats
  rule, cost, p1, p2, p3, p4, count, repeats, at = parse('<BI7I7I7I7I7I2B', request, at)
  local last = k + count
  if rule == FIXED_WINDOW then
    local own_kind, size = p4, WINDOW_SIZE
    --> keys of fixed_window.lua
  elseif rule == SLIDING_COUNTER then
    local own_kind, size = COUNTER, COUNTER_SIZE
    --> keys of sliding_counter.lua
  elseif rule == TOKEN_BUCKET then
    local own_kind, size = BUCKET, BUCKET_SIZE
    --> keys of token_bucket.lua
  else
    local own_kind, size = INTERVAL, INTERVAL_SIZE
    --> keys of interval_bucket.lua
  end
end
return table.concat(answer)
