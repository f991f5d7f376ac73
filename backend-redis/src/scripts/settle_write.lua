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
else
  local settlement = ''
  if op == SETTLE then settlement, totals = reply, costs end
  record = record:sub(1, spent_at - 1) .. totals .. record:sub(replies_at) .. settlement
  call('SET', id_key, record, 'KEEPTTL')
end
