--- The first part of every script: short names of functions, and the current time.

-- Every number in a script is an integer of at most 2^53, which a double represents exactly. `(a -
-- a % b) / b` divides integers.
local pack, parse, call = struct.pack, struct.unpack, redis.call

-- The time in microseconds since 1970. The script reads the time once, because the clock can
-- advance while the script runs. ARGV[2] is the time that a test sets.
local now
if ARGV[2] then
  now = parse('<I7', ARGV[2])
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  if now >= MAX_EXACT then now = MAX_EXACT - 1 end
end
