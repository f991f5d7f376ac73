-- Common to all scripts: the time, and how long a key lives.
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

-- Milliseconds until a time, rounded up, from the start of this one: as the server counts them. Real
-- time must not end what virtual time does not.
local function life_until(time)
  if time > MAX_EXACT then time = MAX_EXACT end
  local life = (time + -time % 1000 - (now - now % 1000)) / 1000
  if life < 1 then life = 1 end
  if ARGV[2] and life < LIFE_IN_TESTS then life = LIFE_IN_TESTS end
  return string.format('%d', life)
end
