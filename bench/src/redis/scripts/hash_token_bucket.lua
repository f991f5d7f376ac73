-- A token bucket as in articles and several libraries: a hash with the number of tokens, which can
-- be a fraction, and the time of the last call in seconds. Every call writes the hash.
--
-- ARGV: capacity, tokens per second, cost. Reply: 1 if the request is admitted, the remaining
-- amount, seconds until a request would be admitted, seconds until the bucket is full.
local capacity, per_second, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000

local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(state[1]) or capacity
local at = tonumber(state[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - at) * per_second)

local allowed, retry_after = 0, 0
if tokens >= cost then
  allowed, tokens = 1, tokens - cost
else
  retry_after = (cost - tokens) / per_second
end

redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / per_second * 1000))
return {
  allowed, math.floor(tokens), tostring(retry_after), tostring((capacity - tokens) / per_second),
}
