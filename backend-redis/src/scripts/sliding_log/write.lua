-- Writes a log: a list, the end of a string, or a whole string.
--
-- Out: admits (`nil` if the log is not valid).
if as_list then
  --> sliding_log/write_list.lua
elseif offset then
  -- check: the script has read only the end of the string. If the string is longer than its foot
  -- says, the next call would read the same end again.
  if call('SETRANGE', key, string.format('%d', offset), after) > offset + #after then
    admits = nil
  elseif not keeps_ttl then
    local ends, ttl = expires_at
    --> ttl.lua
    call('PEXPIRE', key, ttl)
  end
else
  --> write_string.lua
end
