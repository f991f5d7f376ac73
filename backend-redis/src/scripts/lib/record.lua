--- The record under the id of a call contains the reply to the call, or a hold.

--- @section id
--- Reads the record under an id.
---
--- Inputs: id_key; id (begins with the kind and the fingerprint of the call). Output: record
--- (`false` if the record is absent or has expired). The section ends the script if another call
--- has used the id, or if the id has a foreign value.
local record = redis.pcall('GET', id_key)
if record then
  local kind = type(record) == 'string' and #record > ID_HEAD and record:byte()
  if kind ~= ID and kind ~= HOLD then return string.char(ID_FOREIGN) end
  -- The key of the record lives a little longer than the record, and much longer in a test that
  -- sets the time. So the script checks whether the record has expired.
  local life, _, written_at = parse('<I7BI7', record, FINGERPRINT + 1)
  if now >= written_at + life then
    record = false
  elseif record:sub(1, FINGERPRINT) ~= id:sub(1, FINGERPRINT) then
    return string.char(ID_REUSED)
  end
end

--- @section hold
--- Finds the parts of the record of a hold. The layout is in the header of hold.lua.
---
--- Inputs: record, and minimum_and_costs of the call, which has as many costs as the hold. Outputs:
--- held_at, spent_at, epochs_at and replies_at (the places at which these parts of the record
--- begin), lapses_at and reply_size. The section ends the script if the record is a foreign value.
local held_at = HOLD_HEAD + #minimum_and_costs + 1
local spent_at = held_at + #minimum_and_costs - 7
local epochs_at = spent_at + #minimum_and_costs - 7
local replies_at = epochs_at + (#minimum_and_costs - 7) / 7 * EPOCH_NUMBER
if #record <= replies_at then return string.char(ID_FOREIGN) end
local lapses_at, reply_size = parse('<I7I2', record, ID_HEAD + 1)
if #record < replies_at + reply_size - 1 then return string.char(ID_FOREIGN) end

--- @section write_hold
--- Writes the record of a new hold.
---
--- Inputs: id_key, id, id_millis, life, minimum_and_costs, held_and_spent, epochs, reply.
call('PSETEX', id_key, id_millis,
  id:sub(1, ID_REQUEST) .. pack('<I7I7I2', now, now + life / 2, #reply) .. minimum_and_costs
    .. held_and_spent .. epochs .. reply)
