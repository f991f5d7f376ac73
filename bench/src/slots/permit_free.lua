-- Frees a slot: see permit_take.lua.
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('INCR', KEYS[1])
redis.call('PUBLISH', 'permits', '1')
return 1
