-- The floor of a limiter in a script: reads the time and a state of 15 bytes, and writes the state.
-- Argument: a text, whose first bytes are the first state.
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
if value then
  redis.call('SET', KEYS[1], value, 'KEEPTTL')
else
  redis.call('PSETEX', KEYS[1], '86400000', ARGV[1]:sub(1, 15))
end
return #time - 1
