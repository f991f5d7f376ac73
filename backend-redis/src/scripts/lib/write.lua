--- Writes a state.
---
--- Inputs of all sections: key, blocked_until, and three outputs of the rule: after (the value to
--- write), expires_at (the time until which the value must live) and keeps_ttl (whether the key
--- already lives until that time).

--- @section string
--- Writes a string.
if keeps_ttl and blocked_until == 0 then
  call('SET', key, after, 'KEEPTTL')
else
  local ends, ttl = expires_at
  --- @inline lib/ttl.text
  call('PSETEX', key, ttl, after)
end

--- @section log
--- Writes a log. A long log is stored as a list, and a short log as a string. If the rule has
--- changed only the end of the string, the script overwrites only that end.
---
--- Inputs: the inputs of the section `list`, and two outputs of rules/sliding_log.lua: as_list
--- (whether to write a list) and offset (the byte at which `after` overwrites the string, or
--- `nil`). Output: admits (`nil` if the log is a foreign value).
if as_list then
  --- @inline lib/write.list
elseif offset then
  -- The script has not read the whole string, so it checks the size of the string after the write.
  -- A longer string is foreign, because the next call would read the old bytes after the written
  -- end.
  if call('SETRANGE', key, string.format('%d', offset), after) > offset + #after then
    admits = nil
  elseif not keeps_ttl then
    local ends, ttl = expires_at
    --- @inline lib/ttl.text
    call('PEXPIRE', key, ttl)
  end
else
  --- @inline lib/write.string
end

--- @section pool
--- Writes a fair pool, which is a hash (see rules/fair_pool.lua).
---
--- Inputs: `value` (of the key before the write), and three outputs of the rule: member_id, own and
--- members.
local head = after
--- @when general
head = head:sub(1, POOL_HEAD)
--- @end
if not keeps_ttl then
  -- The window is new, so the script writes all members.
  local fields, ends, ttl = { '', head }, expires_at, nil
  members = members or {}
  members[member_id] = own ~= '' and own or nil
  for name, numbers in pairs(members) do
    fields[#fields + 1] = name
    fields[#fields + 1] = numbers
  end
  call('HSET', key, unpack(fields))
  -- Remove the other members one by one: while a cluster moves a slot, a script cannot create a key
  -- again that it has removed.
  local all = value and call('HGETALL', key) or {}
  for place = 1, #all, 2 do
    if all[place] ~= '' and not members[all[place]] then call('HDEL', key, all[place]) end
  end
  --- @inline lib/ttl.text
  call('PEXPIRE', key, ttl)
elseif own ~= '' then
  call('HSET', key, '', head, member_id, own)
else
  call('HSET', key, '', head)
  call('HDEL', key, member_id)
end

--- @section list
--- Writes a list.
---
--- Inputs: `value` and `is_list` (of the key before the write), and four outputs of the rule.
--- `from` and `to` are the arguments of LTRIM. `chunks` (an array of elements) and `chunk` (one
--- element) are full elements of CHUNK records. They are not the chunks of a lease. The script
--- writes them before `after`, the new last element, because only the last element has a foot.
if not is_list then
  -- A server that lacks memory refuses RPUSH only if the script has written nothing yet, and UNLINK
  -- counts as a write. So the script unlinks only a key that exists.
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
  --- @inline lib/ttl.text
  call('PEXPIRE', key, ttl)
end
