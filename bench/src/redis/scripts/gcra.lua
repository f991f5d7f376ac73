-- GCRA, as in a widely used script and its descendants. The state is the theoretical arrival time
-- in seconds, a floating-point number as decimal text. Waits are text too.
--
-- ARGV: burst, requests per period, period in seconds, cost. Reply: admitted cost, remaining
-- amount, seconds until a request would be admitted (or -1), seconds until the state is recovered.
local burst, rate, period, cost =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local interval = period / rate
local increment = interval * cost
local tolerance = interval * burst

-- Seconds since 2017 instead of 1970 leave more digits of the text for fractions.
local time = redis.call('TIME')
local now = (time[1] - 1483228800) + time[2] / 1000000

local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local next_arrival = arrival + increment
local early = now - (next_arrival - tolerance)
local remaining = early / interval

if remaining < 0 then
  return { 0, 0, tostring(-early), tostring(arrival - now) }
end

local reset_after = next_arrival - now
if reset_after > 0 then
  redis.call('SET', KEYS[1], next_arrival, 'EX', math.ceil(reset_after))
end
return { cost, remaining, tostring(-1), tostring(reset_after) }
