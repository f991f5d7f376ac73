-- States with holds; strings are written below.
for k, its in pairs(holds) do
  if its.is_changed then
    if its.replaces then
      -- To append nothing fails if the server lacks memory, before anything is written.
      if its.replaces == 'string' then call('APPEND', KEYS[k], '') end
      call('UNLINK', KEYS[k])
    end
    write_holds(KEYS[k], its, values[k], blocks[k], its.matters or 0)
  end
end
