-- The least that a limiter in a script must do: read the time and a state of 15 bytes, and write
-- the state. Argument: a text. Its first 15 bytes are the initial state.
local time = redis.call('TIME')
local value = redis.call('GET', KEYS[1])
if value then
  redis.call('SET', KEYS[1], value, 'KEEPTTL')
else
  redis.call('PSETEX', KEYS[1], '86400000', ARGV[1]:sub(1, 15))
end
return #time - 1
