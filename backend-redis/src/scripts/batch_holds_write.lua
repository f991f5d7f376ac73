-- Strings with holds; those without are written below.
for k, its in pairs(holds) do
  if changed[k] and values[k] then
    call('PSETEX', KEYS[k], ttl_until(changed[k]), holding(blocking(values[k], blocks[k]), its))
    changed[k] = nil
  end
end
