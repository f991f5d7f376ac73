-- Takes the cost out of the record that a take at `max_wait` is in, if that still counts and is one of
-- the newest MAX_UNDO. The totals behind it go down, so that all from there on is written anew.
local stamp, off = max_wait, 0
if grain > 0 then stamp = stamp - stamp % grain + grain end
local place, element, is_left = first_place, nil, false
if is_there and stamp >= first_stamp and stamp <= newest then
  if number < sealed - MAX_UNDO_SEALED then number, place = sealed - MAX_UNDO_SEALED, 0 end
  local field, origin, bound = 1, 0, stamp - 1
  --> log_search.lua
  if number and (sealed - number) * CHUNK + count - place <= MAX_UNDO then
    local before, found, own = parse('<I7I7I7', element, LOG_HEAD + place * RECORD - 6)
    own = own - before
    if own < 0 then own = own + MODULUS end
    if found == stamp then off = math.min(own, cost) end
    is_left = off < own
  end
end
if off > 0 and off == sum then
  sum, newest, after = 0, 0, false
elseif off > 0 then
  -- What is behind it; with the record itself, if something of it is left.
  local behind, its = {}, element
  local from_place = is_left and place or place + 1
  for its_number = number, sealed do
    local its_count = CHUNK
    if its_number == sealed then
      its, its_count = value, count
    elseif its_number > number then
      its = call('LINDEX', key, string.format('%d', its_number))
    end
    for start = LOG_HEAD + from_place * RECORD + 1, LOG_HEAD + its_count * RECORD, RECORD do
      local its_stamp, its_total = parse('<I7I7', its, start)
      its_total = its_total - off
      if its_total < 0 then its_total = its_total + MODULUS end
      behind[#behind + 1] = pack('<I7I7', its_stamp, its_total)
    end
    from_place = 0
  end
  if stamp == first_stamp then first_stamp, first_total = parse('<I7I7', behind[1]) end
  -- An element without a record is none: the one before is the last.
  if place == 0 and not behind[1] then
    number, place = number - 1, CHUNK
    element = call('LINDEX', key, string.format('%d', number))
  end
  local fits = as_list and CHUNK - place or #behind
  to, sealed, count = number, number - from, place + #behind
  records = element:sub(1, LOG_HEAD + place * RECORD)
    .. table.concat(behind, '', 1, math.min(fits, #behind))
  while fits < #behind do
    chunks = chunks or {}
    chunks[#chunks + 1], sealed, count = records, sealed + 1, count - CHUNK
    records = pack('<BI7', LOG, (parse('<I7', records, CHUNK_SIZE - 6)))
      .. table.concat(behind, '', fits + 1, math.min(fits + CHUNK, #behind))
    fits = fits + CHUNK
  end
  -- The newest is written together with what stands behind it.
  newest, total = parse('<I7I7', records, #records - RECORD + 1)
  sum, records = sum - off, records:sub(1, -RECORD - 1)
end
