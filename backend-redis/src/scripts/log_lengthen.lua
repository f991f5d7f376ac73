-- Makes a list of a string, as the policy now allows more than a string should hold. In and out: value,
-- first_place, count; gone; number. Out: chunks, the elements before the last, and sealed.
--> log_shorten.lua
as_list, chunks = true, {}
while count > CHUNK do
  sealed = sealed + 1
  chunks[sealed] = value:sub(1, CHUNK_SIZE)
  local last_total = parse('<I7', value, CHUNK_SIZE - 6)
  value = pack('<BI7', LOG, last_total) .. value:sub(CHUNK_SIZE + 1)
  count = count - CHUNK
end
