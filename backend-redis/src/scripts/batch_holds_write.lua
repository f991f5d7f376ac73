-- States with holds; strings are written below.
for k, entry in pairs(holds) do
  if entry.is_changed then
    if entry.replaces then
      -- To write nothing fails if the server lacks memory, before anything is written.
      if entry.replaces == 'string' then call('SETRANGE', KEYS[k], '0', '') end
      call('UNLINK', KEYS[k])
    end
    write_holds(KEYS[k], entry, values[k], blocks[k], entry.matters or 0)
  end
end
