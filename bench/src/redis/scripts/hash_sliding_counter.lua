-- A sliding counter in a hash: the number of the window, its count, and the count of the previous
-- window. The previous count is multiplied by the part of its window that the sliding window still
-- covers.
--
-- ARGV: limit, window in seconds, cost. Reply: 1 if the request is admitted, the remaining amount,
-- seconds until the window ends if the request is denied.
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local number = math.floor(now / window)

local state = redis.call('HMGET', KEYS[1], 'window', 'previous', 'current')
local stored_number, previous, current = tonumber(state[1]), 0, 0
if stored_number == number then
  previous, current = tonumber(state[2]), tonumber(state[3])
elseif stored_number == number - 1 then
  previous = tonumber(state[3])
end

local used = previous * (1 - now % window / window) + current
if used + cost > limit then return { 0, 0, tostring(window - now % window) } end

redis.call('HSET', KEYS[1], 'window', number, 'previous', previous, 'current', current + cost)
redis.call('PEXPIRE', KEYS[1], window * 2000)
return { 1, math.floor(limit - used - cost), '0' }
