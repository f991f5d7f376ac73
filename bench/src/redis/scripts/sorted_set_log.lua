-- A log as in most articles on sliding windows: a sorted set of times. It is as cheap as possible:
-- a member is only a time, so two requests in one microsecond count once. A refusal has no wait.
--
-- ARGV: limit, window in microseconds. Reply: 1 if the request is admitted, the remaining
-- amount.
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
