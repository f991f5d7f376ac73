-- Reads the record of the hold that is settled or extended. The inputs are id_key, id and op. The
-- outputs are record, the outputs of hold_record.lua, life, taken_at, spent (the spent cost of each
-- charge so far) and costs (the spent costs by the call). Returns immediately if the hold is
-- unknown or already settled.
local asked = id:sub(ID_REQUEST + 1)
--> id_record.lua
if not record then return string.char(HOLD_UNKNOWN) end
--> hold_record.lua
local life, _, taken_at = parse('<I7BI7', record, FINGERPRINT + 1)
local spent, costs = record:sub(spent_at, epochs_at - 1), asked:sub(8)
if #record >= replies_at + reply_size then
  local settlement = record:sub(replies_at + reply_size)
  if op == SETTLE and spent == costs then return settlement end
  return string.char(HOLD_SETTLED) .. spent .. settlement
end
if op == EXTEND and now >= lapses_at then return pack('<BI7', HOLD_LAPSED, now - lapses_at) end
