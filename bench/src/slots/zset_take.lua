-- Takes a slot, with the algorithm that LiteLLM and others use: one sorted set of holders, scored
-- by the time at which their leases end.
--
-- KEYS[1]: the set. ARGV: the limit, the lease in microseconds, the holder.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
return 1
