-- Writes a log: a list, the end of a string, or a whole string.
if as_list then
  --> write_list.lua
elseif offset then
  call('SETRANGE', key, string.format('%d', offset), after)
  if not kept then
    local ends, life = lives_until
    --> life.lua
    call('PEXPIRE', key, life)
  end
else
  --> write_string.lua
end
