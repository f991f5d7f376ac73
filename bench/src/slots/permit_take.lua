-- Takes a slot, with the algorithm of redisson's RPermitExpirableSemaphore: a counter of free
-- slots, and a sorted set of the leases, from which the slots of lapsed leases are returned.
--
-- KEYS[1]: the counter. KEYS[2]: the set. ARGV: the limit, the lease in microseconds, the holder.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local free = tonumber(redis.call('GET', KEYS[1]) or ARGV[1])
local lapsed = redis.call('ZRANGEBYSCORE', KEYS[2], 0, now, 'LIMIT', 0, ARGV[1])
if #lapsed > 0 then
  redis.call('ZREM', KEYS[2], unpack(lapsed))
  free = free + #lapsed
end
if free < 1 then return 0 end
redis.call('SET', KEYS[1], free - 1)
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
redis.call('PEXPIRE', KEYS[2], math.ceil(ARGV[2] / 1000))
return 1
