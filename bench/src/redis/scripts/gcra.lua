-- GCRA in the shape that the widely used script has, and those that were made from it: the theoretical
-- arrival time as decimal text, in seconds, in floating point; the waits answered as text.
--
-- ARGV: burst, requests per period, period in seconds, cost. Answer: how many pass, how many remain,
-- seconds until it would pass (or -1), seconds until all is as new.
local burst, rate, period, cost =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local interval = period / rate
local increment = interval * cost
local tolerance = interval * burst

-- Seconds since a recent day rather than since 1970, so that the text has digits left for fractions.
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
