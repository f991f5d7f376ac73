-- Makes a hold: carries out an acquire once, as id.lua does, and remembers what it took.
--
-- KEYS, ARGV[1]: of the script below; then the key of the epoch of each charge; the last key is
-- that of the id. ARGV[2]: HOLD, fingerprint of the call, life of the record (twice the time to
-- live of the id), whether the policy of a single charge is a shadow; the minimum (0 for none), the
-- cost of each charge. ARGV[3]: the life in milliseconds, as text. The time of a test is the
-- argument after it.
-- Value of the id: ARGV[2] up to the minimum; time of the hold, until when it
-- can be extended, size of the reply (two bytes); the minimum, the costs; what is held of each
-- charge (NOT_COUNTED of a shadow that refused); what is spent of each; the epoch of each; the
-- reply; once the hold is settled, the reply to that.
-- Reply: of the script below; or ID_REUSED if
-- the id is that of another call, or ID_FOREIGN if the value of the id is not ours.
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
