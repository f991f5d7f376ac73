-- Writes a string. In: key; after, expires_at, keeps_ttl (of the rule); blocked_until.
if keeps_ttl and blocked_until == 0 then
  call('SET', key, after, 'KEEPTTL')
else
  local ends, ttl = expires_at
  --> ttl.lua
  call('PSETEX', key, ttl, after)
end
