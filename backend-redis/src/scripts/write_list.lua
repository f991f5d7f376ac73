-- Writes a log. In: key, value, is_list (what lay there, if anything); after, lives_until, kept, from,
-- to, chunk, chunks (of the rule); blocked_until.
if not is_list then
  -- Nothing is unlinked without need: after a first write, a lack of memory would go unnoticed.
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
if not (kept and is_list and blocked_until == 0) then
  local ends, life = lives_until
  --> life.lua
  call('PEXPIRE', key, life)
end
