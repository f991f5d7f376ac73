-- Makes a hold: executes an acquire once per id, as id.lua does, and records the charged costs. The
-- inner script, single.lua or batch.lua, decides the acquire.
--
-- KEYS: the keys of the inner script, then the key of the epoch of each charge, then the key of the
-- id. Slots have no epoch, so their charges have the key of the id instead of the key of an epoch.
--
-- ARGV[1]: the request of the inner script.
--
-- ARGV[2]: HOLD, the fingerprint of the call without its costs (20 bytes), the life of the record
-- (twice the time to live of the id), whether the policy of a single charge is a shadow, the
-- minimum (0 for none), and the cost of each charge. In a script for states with holds, a number of
-- 4 bytes follows for each charge: the maximum number of open holds, or 0 if the state does not
-- store its holds. IS_FAILURE is added to the number if the policy counts failures.
--
-- ARGV[3]: the life of the record in milliseconds, as text.
--
-- ARGV[4]: the time, if a test sets it.
--
-- The record under the id consists of these parts, in this order:
--   ARGV[2] up to the minimum
--   the time of the hold
--   the time until which the hold can be extended
--   the size of the reply (2 bytes)
--   the minimum of the call
--   the cost of each charge
--   the held cost of each charge (NOT_COUNTED for a charge that a shadow denied)
--   the spent cost of each charge
--   the epoch of each charge
--   the reply
--   the reply to the settlement, if the hold is settled
--
-- Reply: the reply of the inner script, or one of three errors. In a script for states with holds,
-- the reply to an allowed call ends with the number of the hold on the state of each charge (0 if
-- there is none), and the reply to a repetition begins with HOLD_REPEATED. An error is ID_REUSED if
-- another call has used the id, and ID_FOREIGN if the id or an epoch has a foreign value. If a
-- state has the maximum number of open holds, the reply is TOO_MANY_HOLDS, the place (from 1) of
-- the charge in the call, and the number of open holds (4 bytes).
local id_key, id, id_millis = KEYS[#KEYS], ARGV[2], ARGV[3]
-- The inner script reads its own keys from KEYS, and its time from ARGV[2]. So remove the key of
-- the id from KEYS, and move the time.
KEYS[#KEYS], ARGV[2] = nil, ARGV[4]
--- @when lapse
local max_counts = (#id - ID_REQUEST - 7) / 11 * 4
max_counts, id = id:sub(-max_counts), id:sub(1, -max_counts - 1)
local function max_open_holds(place)
  local number = struct.unpack('<I4', max_counts, place * 4 - 3)
  return number % IS_FAILURE, number >= IS_FAILURE
end
--- @end
local epoch_keys, epoch_values = {}, {}
for place = (#id - ID_REQUEST - 7) / 7, 1, -1 do
  epoch_keys[place], KEYS[#KEYS] = KEYS[#KEYS], nil
end
--- @include lib/now

local minimum_and_costs = id:sub(ID_REQUEST + 1)
--- @inline lib/record.id
if record then
  --- @inline lib/record.hold
  if record:sub(HOLD_HEAD + 1, held_at - 1) ~= minimum_and_costs then
    return string.char(ID_REUSED)
  end
  local first_reply = record:sub(replies_at, replies_at + reply_size - 1)
  --- @when lapse
  first_reply = string.char(HOLD_REPEATED) .. first_reply
  --- @end
  return first_reply
end

--- @when lapse
do
  --- @inline lib/usual_slots.hold
end
--- @end

for place, epoch_key in ipairs(epoch_keys) do
  local value = epoch_key ~= id_key and redis.pcall('GET', epoch_key)
  if value and (type(value) == 'table' or #value ~= EPOCH_SIZE) then
    return string.char(ID_FOREIGN)
  end
  epoch_values[place] = value
end

-- The held and the spent cost of each charge. If the call is refused, `held_and_spent` stays `nil`,
-- and the call gets no record.
local held_and_spent = nil
local function decide()
  --- @inline BODY
end

local reply = decide()
if held_and_spent then
  local life = parse('<I7', id, FINGERPRINT + 1)
  --- @inline lib/epoch.join
  --- @inline lib/record.write_hold
end
return reply
