-- Decides a call with an id once: until the id expires, the same call gets the first reply again.
-- The inner script, single.lua or batch.lua, decides the call.
--
-- KEYS: the keys of the inner script, then the key of the id.
--
-- ARGV[1]: the request of the inner script.
--
-- ARGV[2]: ID, the fingerprint of the call (20 bytes of SHA-1), the time to live of the id, and
-- whether the policy of a single charge is a shadow.
--
-- ARGV[3]: the time to live of the id in milliseconds, as text.
--
-- ARGV[4]: the time, if a test sets it.
--
-- The record under the id consists of ARGV[2], the time at which the record was written, and the
-- reply.
--
-- Reply: the reply of the inner script, ID_REUSED if another call has used the id, or ID_FOREIGN if
-- the id has a foreign value.
local id_key, id, id_millis = KEYS[#KEYS], ARGV[2], ARGV[3]
-- The inner script reads its own keys from KEYS, and its time from ARGV[2]. So remove the key of
-- the id from KEYS, and move the time.
KEYS[#KEYS], ARGV[2] = nil, ARGV[4]
--- @include lib/now

--- @inline lib/record.id
if record then return record:sub(ID_HEAD + 1) end

-- Whether the inner script has executed the call. A refused call was not executed and gets no
-- record.
local is_done = false
local function decide()
  --- @inline BODY
end

local reply = decide()
if is_done then call('PSETEX', id_key, id_millis, id .. pack('<I7', now) .. reply) end
return reply
