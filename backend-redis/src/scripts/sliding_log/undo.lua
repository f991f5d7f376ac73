-- take_back: takes the cost out of the record that a take at `taken_at` is in, if the record still counts
-- and is one of the newest MAX_UNDO. The totals of all later records go down, so these are written
-- again. Out: last_to_go (the time of the record if it is out of reach).
local stamp, undone = taken_at, 0
if grain > 0 then stamp = stamp - stamp % grain + grain end
local place, element, is_left = oldest_place, nil, false
if is_there and stamp >= oldest_stamp and stamp <= newest_stamp then
  if number < sealed - MAX_UNDO_SEALED then number, place = sealed - MAX_UNDO_SEALED, 0 end
  local field, origin, bound = 1, 0, stamp - 1
  --> sliding_log/search.lua
  if number and (sealed - number) * CHUNK + count - place <= MAX_UNDO then
    local before, found, own = parse('<I7I7I7', element, LOG_HEAD + place * RECORD - 6)
    own = own - before
    if own < 0 then own = own + MODULUS end
    if found == stamp then undone = math.min(own, cost) end
    is_left = undone < own
  elseif number then -- is_out_of_reach
    last_to_go = stamp
  end
end
if undone > 0 and undone == sum then
  sum, newest_stamp, after = 0, 0, false
elseif undone > 0 then
  -- The later records; and the record itself, if a part of its cost remains.
  local later, part = {}, element
  local from_place = is_left and place or place + 1
  for part_number = number, sealed do
    local part_count = CHUNK
    if part_number == sealed then
      part, part_count = value, count
    elseif part_number > number then
      part = call('LINDEX', key, string.format('%d', part_number))
    end
    if not part or #part < LOG_HEAD + part_count * RECORD then
      number = nil
      break
    end
    for start = LOG_HEAD + from_place * RECORD + 1, LOG_HEAD + part_count * RECORD, RECORD do
      local part_stamp, part_total = parse('<I7I7', part, start)
      part_total = part_total - undone
      if part_total < 0 then part_total = part_total + MODULUS end
      later[#later + 1] = pack('<I7I7', part_stamp, part_total)
    end
    from_place = 0
  end
  -- The last element has at least one record: without one, the element before is the last.
  if number and place == 0 and not later[1] then
    number, place = number - 1, CHUNK
    element = is_list and call('LINDEX', key, string.format('%d', number))
    if not element or #element ~= CHUNK_SIZE then number = nil end
  end
  if number then
    if later[1] and stamp == oldest_stamp then oldest_stamp, oldest_total = parse('<I7I7', later[1]) end
    local fits = as_list and CHUNK - place or #later
    to, sealed, count = number, number - from, place + #later
    records = element:sub(1, LOG_HEAD + place * RECORD)
      .. table.concat(later, '', 1, math.min(fits, #later))
    while fits < #later do
      chunks = chunks or {}
      chunks[#chunks + 1], sealed, count = records, sealed + 1, count - CHUNK
      records = pack('<BI7', LOG, (parse('<I7', records, CHUNK_SIZE - 6)))
        .. table.concat(later, '', fits + 1, math.min(fits + CHUNK, #later))
      fits = fits + CHUNK
    end
    -- The newest record is written with the foot.
    newest_stamp, total = parse('<I7I7', records, #records - RECORD + 1)
    sum, records = sum - undone, records:sub(1, -RECORD - 1)
  end
end
