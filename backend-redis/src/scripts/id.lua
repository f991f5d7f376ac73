-- Decides a call with an id once: until the id expires, the same call is answered as the first time.
--
-- KEYS, ARGV[1]: of the script below; the last key is that of the id. ARGV[2]: ID, fingerprint of the call, time
-- to live of the id, whether the policy of a single charge is a shadow. ARGV[3]: the time to live in milliseconds,
-- as text. The time of a test is the argument after it.
-- Value of the id: ARGV[2], the time at which it was written, the reply.
-- Reply: of the script below; or ID_REUSED if the id is that of another call, or ID_FOREIGN if the value of the
-- id is not ours.
local id_key, id, id_millis = KEYS[#KEYS], ARGV[2], ARGV[3]
KEYS[#KEYS], ARGV[2] = nil, ARGV[4]
--> head.lua

--> id_record.lua
if record then return record:sub(ID_HEAD + 1) end

-- Whether the call was carried out: what is denied is not remembered.
local is_done = false
local function decide()
  --> ITS_BODY
end

local reply = decide()
if is_done then call('PSETEX', id_key, id_millis, id .. pack('<I7', now) .. reply) end
return reply
