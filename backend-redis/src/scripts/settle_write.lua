-- Writes the record of a hold that is settled or extended. In: as settle_record.lua leaves it; totals (what is spent of each
-- charge then), reply.
if op == EXTEND then
  local span = parse('<I7', id, FINGERPRINT + 1) / 2
  lapses_at = math.max(lapses_at, now + span)
  local ends, ttl = math.max(taken_at + life, lapses_at + span), nil
  record = record:sub(1, FINGERPRINT) .. pack('<I7', ends - taken_at) .. record:sub(ID_REQUEST, ID_HEAD)
    .. pack('<I7', lapses_at) .. record:sub(ID_HEAD + 8)
  --> ttl.lua
  call('PSETEX', id_key, ttl, record)
  -- The epochs must last for as long as the hold is known.
  local expires_at = taken_at + parse('<I7', record, FINGERPRINT + 1)
  for epoch_key, value in pairs(epoch_values) do
    if parse('<I7', value, EPOCH_NUMBER + 2) < expires_at then
      local until_then = expires_at - now
      local epoch_ends = math.min(expires_at + (until_then - until_then % 2) / 2, MODULUS)
      ends = epoch_ends
      --> ttl.lua
      call('PSETEX', epoch_key, ttl,
        value:sub(1, EPOCH_NUMBER + 1) .. pack('<I7', epoch_ends) .. value:sub(EPOCH_NUMBER + 9))
    end
  end
else
  local settlement = ''
  if op == SETTLE then settlement, totals = reply, costs end
  record = record:sub(1, spent_at - 1) .. totals .. record:sub(epochs_at) .. settlement
  call('SET', id_key, record, 'KEEPTTL')
end
