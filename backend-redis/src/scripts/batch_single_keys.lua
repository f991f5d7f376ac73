-- Charges the keys of a group by its rule.
--
-- In: k (the key before the first), last (the last key), own_kind and size of the values of the rule; cost, repeats,
-- the four numbers of the policy.
while k < last do
  k = k + 1
  local value, kind, times = found[k], own_kind, 1
  if repeats > 0 then times, at = parse('<I2', request, at) end
  local is_usual
  if value then
    is_usual = #value == size and value:byte() == own_kind
  else
    value, kind, is_usual = nil, NONE, others_absent
  end
  if is_usual then
    local written, written_until, keeps_all = nil, 0, true
    for _ = 1, times do
      local admits, a, b, c, after, expires_at, keeps_ttl
      local d = 0
      --> ITS_RULE
      n = n + 1
      if after then
        answer[n], value, kind = after, after, own_kind
        written, written_until, keeps_all = after, expires_at, keeps_all and keeps_ttl
      elseif admits == nil then
        answer[n] = unusual
        break
      elseif a > 0 or b > 0 then
        answer[n], answer[n + 1] = denied, value
        n = n + 1
      else
        answer[n] = empty
      end
    end
    if written then
      local key, after, expires_at, keeps_ttl = KEYS[k], written, written_until, keeps_all
      --> write_string.lua
    end
  else
    n = n + 1
    answer[n] = unusual
  end
end
