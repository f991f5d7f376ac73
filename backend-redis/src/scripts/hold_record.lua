-- Finds what is in the record of a hold. In: record; asked (the minimum and the costs of the call,
-- which are as many as those of the hold). Out: held_at, spent_at, epochs_at, replies_at (where
-- these begin), lapses_at, reply_size. Returns at once if the record is not ours.
local held_at = HOLD_HEAD + #asked + 1
local spent_at = held_at + #asked - 7
local epochs_at = spent_at + #asked - 7
local replies_at = epochs_at + (#asked - 7) / 7 * EPOCH_NUMBER
if #record <= replies_at then return string.char(ID_FOREIGN) end
local lapses_at, reply_size = parse('<I7I2', record, ID_HEAD + 1)
if #record < replies_at + reply_size - 1 then return string.char(ID_FOREIGN) end
