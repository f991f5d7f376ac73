-- Makes a hold: executes an acquire once, as id.lua does, and records the charged costs.
--
-- KEYS: the keys of the script below, then the key of the epoch of each charge, then the key of the
-- id. ARGV[1]: the request of the script below.
-- ARGV[2]: HOLD, fingerprint of the call, life of the record (twice the time to live of the id),
-- whether the policy of a single charge is a shadow, the minimum (0 for none), the cost of each
-- charge. ARGV[3]: the life in milliseconds, as text. The time of a test is the next argument.
--
-- The value of the id consists of:
--   ARGV[2] up to the minimum
--   time of the hold, time until which it can be extended, size of the reply (two bytes)
--   the minimum, the costs
--   the held cost of each charge (NOT_COUNTED for a shadow that refused)
--   the spent cost of each charge
--   the epoch of each charge
--   the reply
--   the reply to the settlement, after the hold is settled
--
-- Reply: the reply of the script below, ID_REUSED if another call has used the id, or ID_FOREIGN if
-- the id has a foreign value.
local id_key, id, id_millis = KEYS[#KEYS], ARGV[2], ARGV[3]
KEYS[#KEYS], ARGV[2] = nil, ARGV[4]
--> hold_refunds.lua
local epoch_keys, epoch_values = {}, {}
for place = (#id - ID_REQUEST - 7) / 7, 1, -1 do epoch_keys[place], KEYS[#KEYS] = KEYS[#KEYS], nil end
--> head.lua

local asked = id:sub(ID_REQUEST + 1)
--> id_record.lua
if record then
  --> hold_record.lua
  if record:sub(HOLD_HEAD + 1, held_at - 1) ~= asked then return string.char(ID_REUSED) end
  return record:sub(replies_at, replies_at + reply_size - 1)
end

for place, epoch_key in ipairs(epoch_keys) do
  local value = redis.pcall('GET', epoch_key)
  if value and (type(value) == 'table' or #value ~= EPOCH_SIZE) then return string.char(ID_FOREIGN) end
  epoch_values[place] = value
end

-- What is held and spent, if the call was carried out: what is denied is not remembered.
local hold = nil
local function decide()
  --> ITS_BODY
end

local reply = decide()
if hold then
  local life = parse('<I7', id, FINGERPRINT + 1)
  --> hold_epochs.lua
  call('PSETEX', id_key, id_millis,
    id:sub(1, ID_REQUEST) .. pack('<I7I7I2', now, now + life / 2, #reply) .. asked .. hold .. epochs .. reply)
end
return reply
