--- The first part of every script: short names of functions, and the current time.

-- Every number in a script is an integer of at most 2^53, which a double represents exactly. `(a -
-- a % b) / b` divides integers.
local pack, parse, call = struct.pack, struct.unpack, redis.call

-- The windows of quotas for which the caller has computed the numbers of the policies all contain
-- the times from `from` to `to`. ARGV[2] has these two times if a charge is to a quota.
local now, from, to
if ARGV[2] and #ARGV[2] >= EDGES_SIZE then
  from, to = parse('<I7I7', ARGV[2])
  ARGV[2] = #ARGV[2] > EDGES_SIZE and ARGV[2]:sub(EDGES_SIZE + 1) or nil
end

-- The time in microseconds since 1970. The script reads the time once, because the clock can
-- advance while the script runs. ARGV[2] is now the time that a test sets.
if ARGV[2] then
  now = parse('<I7', ARGV[2])
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  if now >= MAX_EXACT then now = MAX_EXACT - 1 end
end

-- If the time is in another window, the script changes nothing. The caller then sends the call
-- again, with the windows that contain this time.
if from and (now < from or now >= to) then return pack('<BI7', OTHER_WINDOW, now) end
