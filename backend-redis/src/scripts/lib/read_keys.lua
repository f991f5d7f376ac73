--- Reads all keys of a batch with one command.
---
--- Outputs: found (for each key, its string or `false`) and others_absent. If others_absent is
--- true, every key without a string is absent. Otherwise, at least one such key has a value of
--- another type.
local found = call('MGET', unpack(KEYS))
-- MGET returns `false` both for a key that is absent and for a key that is not a string.
local others_absent = true
do
  local absent = {}
  for k = 1, #KEYS do
    if not found[k] then absent[#absent + 1] = KEYS[k] end
  end
  if absent[1] then others_absent = call('EXISTS', unpack(absent)) == 0 end
end
