-- Writes a list. In: key, value, is_list (of the key before); after, expires_at, keeps_ttl, from, to (bounds
-- of LTRIM), chunk, chunks (elements to add before the last), of the rule; blocked_until.
if not is_list then
  -- Unlinks only if it must: the server checks for lack of memory at the first write alone.
  if value then call('UNLINK', key) end
  if chunks then
    for place = 1, #chunks do call('RPUSH', key, chunks[place]) end
  end
  if chunk then call('RPUSH', key, chunk) end
  call('RPUSH', key, after)
else
  if from > 0 or to >= 0 then call('LTRIM', key, from, to) end
  call('LSET', key, '-1', chunks and chunks[1] or chunk or after)
  for place = 2, chunks and #chunks or 0 do call('RPUSH', key, chunks[place]) end
  if chunk or chunks then call('RPUSH', key, after) end
end
if not (keeps_ttl and is_list and blocked_until == 0) then
  local ends, ttl = expires_at
  --> ttl.lua
  call('PEXPIRE', key, ttl)
end
