-- Finds the parts of the record of a hold. The inputs are record and asked (the minimum and the
-- costs of the call, which has as many costs as the hold). The outputs are held_at, spent_at,
-- epochs_at, replies_at (where these parts begin), lapses_at and reply_size. Returns immediately if
-- the record is a foreign value.
local held_at = HOLD_HEAD + #asked + 1
local spent_at = held_at + #asked - 7
local epochs_at = spent_at + #asked - 7
local replies_at = epochs_at + (#asked - 7) / 7 * EPOCH_NUMBER
if #record <= replies_at then return string.char(ID_FOREIGN) end
local lapses_at, reply_size = parse('<I7I2', record, ID_HEAD + 1)
if #record < replies_at + reply_size - 1 then return string.char(ID_FOREIGN) end
