-- Writes a state that is a string. In: key; after, lives_until, kept (of the rule); blocked_until.
if kept and blocked_until == 0 then
  call('SET', key, after, 'KEEPTTL')
else
  local ends, life = lives_until
  --> life.lua
  call('PSETEX', key, life, after)
end
