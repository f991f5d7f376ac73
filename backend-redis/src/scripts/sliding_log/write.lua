-- Writes a log: a list, the end of a string, or a whole string.
if as_list then
  --> sliding_log/write_list.lua
elseif offset then
  call('SETRANGE', key, string.format('%d', offset), after)
  if not keeps_ttl then
    local ends, ttl = expires_at
    --> ttl.lua
    call('PEXPIRE', key, ttl)
  end
else
  --> write_string.lua
end
