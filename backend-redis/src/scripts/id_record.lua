-- Reads what is remembered under an id. In: id_key; id (begins with the kind and the fingerprint of the call). Out:
-- record (`false` if there is none, or if it has expired). Returns at once if it is that of another call, or not
-- ours.
local record = redis.pcall('GET', id_key)
if record then
  local kind = type(record) == 'string' and #record > ID_HEAD and record:byte()
  if kind ~= ID and kind ~= HOLD then return string.char(ID_FOREIGN) end
  -- The key lives longer than the id, in a test with times of its own much longer.
  local life, _, written_at = parse('<I7BI7', record, FINGERPRINT + 1)
  if now >= written_at + life then
    record = false
  elseif record:sub(1, FINGERPRINT) ~= id:sub(1, FINGERPRINT) then
    return string.char(ID_REUSED)
  end
end
