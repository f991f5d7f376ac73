-- The log as most articles on sliding windows keep it: a sorted set of stamps, in five commands, the
-- last two only if it admits. Kept as cheap as it can be: the member is the stamp alone, though two
-- requests of one microsecond then count once, and a refusal does not say how long to wait.
--
-- ARGV: limit, window in microseconds. Answer: whether it passes, how much remains.
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then return { 0, 0 } end
local stamp = string.format('%.0f', now)
redis.call('ZADD', KEYS[1], stamp, stamp)
redis.call('PEXPIRE', KEYS[1], window / 1000)
return { 1, limit - count - 1 }
