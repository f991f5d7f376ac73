-- Common to all scripts: the time.
-- Every number is an integer of at most 2^53, which doubles hold exactly; (a - a % b) / b divides.
local pack, parse, call = struct.pack, struct.unpack, redis.call

-- Microseconds since 1970, read once, as the clock may go on within a script. Only tests give the
-- time.
local now
if ARGV[2] then
  now = parse('<I7', ARGV[2])
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  if now >= MAX_EXACT then now = MAX_EXACT - 1 end
end
