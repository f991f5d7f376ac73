--- Sliding log. A cost is admitted if and only if the sum of the costs of the records with time >
--- now - window, plus the cost, is at most limit. core/src/algorithm/sliding_log.rs decides in the
--- same way, with another data structure. The core keeps records in a queue, and removes expired
--- records at each charge. The script keeps them in a Redis value, and usually reads and writes
--- only the end of this value. lib/rules.lua describes the inputs and outputs.
---
--- A log of at most 128 records is a string:
---
---   |  1  |      7      |   14   |   14   |       |      14       |  37  |
---   +-----+-------------+--------+--------+-- … --+---------------+------+
---   | LOG | total       | record | record |       | newest record | foot |
---   |     | before them |        |        |       |               |      |
---   +-----+-------------+--------+--------+-- … --+---------------+------+
---   |-- LOG_HEAD: 8 ----|                         |---- LOG_END: 51 -----|
---
---   | record | stamp 7 | total 7 |
---   | foot   | total_before 7 | oldest_place 2 | oldest_stamp 7 | oldest_total 7 |
---   |        | sealed 4 | count 2 | expires_at 7 | LOG 1 |
---
--- The records are in the order of their times, and the oldest record is first.
---
---   stamp         the time of the record: the time of the call, or the end of the grain
---   total         the running total of the costs up to this record
---   oldest_…      the place, stamp and total of the oldest record that counted at the last write
---   total_before  the running total before the oldest record that counted
---   sealed        the number of elements before this element (0 in a string)
---   count         the number of records in this element
---   expires_at    the time until which the key lives at least
---
--- Only the difference of two totals has a meaning. oldest_place is the place of the record in its
--- element, from 0.
---
--- A log that possibly needs more than 128 records is a list. The last element of the list has the
--- same layout as a string, with at most CHUNK records. Each earlier element is sealed: it has
--- exactly CHUNK records and no foot.
---
--- A decision reads and writes only the end of the string, or the last element of the list. If a
--- record has expired since the last write, the decision also reads the next records, or the
--- element that contains them. Expired records are not removed immediately. They stay in a string
--- until they are half of the string, and in a list until a whole element has expired.
local limit, window, grain, long = p1, p2, p3, p4
local newest_stamp, total, total_before, oldest_place, oldest_stamp, oldest_total = 0, 0, 0, 0, 0, 0
local sealed, count, expires_at_before, is_there = 0, 0, 0, false
if kind == LOG then
  newest_stamp, total, total_before, oldest_place, oldest_stamp, oldest_total, sealed, count,
    expires_at_before = parse('<I7I7I7I2I7I7I4I2I7', value, #value - LOG_END + 1)
  is_there = true
end

-- first_counted: moves oldest_… to the oldest record that still counts. `number` is the number of
-- the element (from 0) that contains this record, or `nil` if the log is a foreign value.
local at, sum, number, oldest_cost = now, 0, 0, 0
if is_there then
  -- check: if the script has read the whole value, the foot (the fixed-size end of the log) must
  -- agree with the size of the value.
  local size = LOG_HEAD + count * RECORD + LOG_FOOT
  if is_list and count > CHUNK or not is_list and sealed > 0 or #value ~= size and #value ~= LOG_END
    or oldest_place >= count and (sealed == 0 or oldest_place >= CHUNK) then
    number = nil
  end
end
if is_there and number then
  -- monotonic: if the clock stepped back, the newest record determines the current time. The
  -- current time is then the stamp of this record, or the start of the grain of this record.
  if newest_stamp - grain > at then at = newest_stamp - grain end
  local horizon = at - window
  if newest_stamp <= horizon then
    is_there = false
  elseif oldest_stamp <= horizon then
    local field, origin, bound, place, element = 1, 0, horizon, oldest_place + 1, nil
    if #value == LOG_END then -- Usually few records have expired, so read only four records.
      local start = LOG_HEAD + place * RECORD - 7
      local excerpt = call('GETRANGE', key, string.format('%d', start), string.format('%d', start + 62))
      -- For each record, read three numbers: the running total before the record (of the previous
      -- record or the head), and the stamp and the total of the record.
      for byte = 1, #excerpt - 20, RECORD do
        total_before, oldest_stamp, oldest_total = parse('<I7I7I7', excerpt, byte)
        if oldest_stamp > horizon then break end
        place = place + 1
      end
    end
    if oldest_stamp <= horizon then
      --- @inline rules/sliding_log.search
      if number then
        total_before, oldest_stamp, oldest_total =
          parse('<I7I7I7', element, LOG_HEAD + place * RECORD - 6)
      end
    end
    oldest_place = place
  end
  sum = total - total_before
  if sum < 0 then sum = sum + MODULUS end
  -- check: the newest record is the last record that counts, and each record has a cost above 0.
  oldest_cost = oldest_total - total_before
  if oldest_cost < 0 then oldest_cost = oldest_cost + MODULUS end
  if oldest_cost == 0 or oldest_cost > sum or sum > MAX_EXACT or oldest_stamp > newest_stamp
    or (oldest_cost == sum) ~= (oldest_stamp == newest_stamp)
    or total > MODULUS or total_before > MODULUS or oldest_total > MODULUS
    or newest_stamp < grain or newest_stamp >= MAX_EXACT + grain or grain > 0 and newest_stamp % grain > 0
    or expires_at_before < newest_stamp + window or expires_at_before > MODULUS then
    number = nil
  end
end
if number and not is_there then
  newest_stamp, total, total_before, sum, number = 0, 0, 0, 0, sealed
end
-- Check the number of elements, because another program has possibly added elements to the list.
if is_list and call('LLEN', key) ~= sealed + 1 then number = nil end

-- wait
admits = cost <= limit and sum + cost <= limit

local last_to_expire, records, offset, as_list = 0, nil, nil, is_list
local from, to, chunk, chunks = number, -1, nil, nil
if not number then
  admits = nil
elseif op == ACQUIRE and admits then -- take
  local stamp = grain > 0 and at - at % grain + grain or at
  --- @when general
  -- If a log has the maximum number of records, a charge beyond the limit moves the newest record
  -- to the current time. The cost of the moved record then counts longer.
  if max_records and is_there and (sealed - number) * CHUNK + count - oldest_place >= max_records then
    if oldest_stamp == newest_stamp then oldest_stamp = stamp end
    newest_stamp = stamp
  end
  --- @end
  local before = total
  total = total - (MODULUS - cost)
  if total < 0 then total = before + cost end
  sum, sealed = sum + cost, sealed - number
  if not is_there then
    records, as_list = pack('<BI7', LOG, before), long == 1
    oldest_place, oldest_stamp, count = 0, stamp, 1
  else
    if not is_list and (long == 1 or oldest_place >= MIN_EXPIRED and oldest_place * 2 > count) then
      -- Remove the expired records from the string.
      --- @inline rules/sliding_log.whole
      value = pack('<BI7', LOG, total_before) .. value:sub(LOG_HEAD + oldest_place * RECORD + 1)
      oldest_place, count = 0, count - oldest_place
      if long == 1 then -- The policy now allows more records than fit in a string.
        as_list, chunks = true, {}
        while count > CHUNK do
          sealed = sealed + 1
          chunks[sealed] = value:sub(1, CHUNK_SIZE)
          local last_total = parse('<I7', value, CHUNK_SIZE - 6)
          value = pack('<BI7', LOG, last_total) .. value:sub(CHUNK_SIZE + 1)
          count = count - CHUNK
        end
      end
    end
    if newest_stamp == stamp then
      count = count - 1
    elseif as_list and count >= CHUNK then
      chunk, sealed = value:sub(1, -LOG_FOOT - 1), sealed + 1
      value, count = pack('<BI7', LOG, before), 0
    end
    if number and #value == LOG_END then
      records, offset = '', LOG_HEAD + count * RECORD
    elseif number then
      records = value:sub(1, LOG_HEAD + count * RECORD)
    end
    count = count + 1
  end
  if oldest_stamp == stamp then oldest_total = total end
  newest_stamp = stamp
elseif op == REFUND and cost >= sum then -- refund
  sum, newest_stamp, after = 0, 0, false
elseif op == REFUND then
  sum = sum - cost
  local field, origin, bound, place, element = 8, total_before, sum - 1, oldest_place, nil
  --- @inline rules/sliding_log.search
  if number then
    to, sealed, count = number, number - from, place + 1
    records = element:sub(1, LOG_HEAD + place * RECORD)
    newest_stamp = parse('<I7', element, #records + 1)
    total = total_before - (MODULUS - sum)
    if total < 0 then total = total_before + sum end
    if oldest_stamp == newest_stamp then oldest_total = total end
  end
elseif op == UNDO then -- undo
  --- @inline rules/sliding_log.undo
elseif not admits and cost <= limit then
  -- Find the last record that must expire before the cost is admitted. It is usually the oldest
  -- record.
  local excess = sum + cost - limit
  last_to_expire = oldest_stamp
  if oldest_cost < excess then
    local field, origin, bound, place, element = 8, total_before, excess - 1, oldest_place, nil
    --- @inline rules/sliding_log.search
    last_to_expire = number and parse('<I7', element, LOG_HEAD + place * RECORD + 1)
  end
end
if not number then
  admits = nil
elseif records then
  expires_at = newest_stamp + window
  local was_there, share = is_there, 8
  --- @inline lib/ttl.slack
  after = pack('<I7I7I7I2I7I7I4I2I7B', newest_stamp, total, total_before, oldest_place, oldest_stamp,
    oldest_total, sealed, count, expires_at, LOG)
  if not offset then after = records .. after end
end
a, b, c = sum, newest_stamp, last_to_expire

--- @section whole
--- Reads the whole string, if the script has read only the end of the string before. Inputs and
--- outputs: value, key, count and number (`nil` if the log is a foreign value).
if #value == LOG_END then value = call('GET', key) end
if #value ~= LOG_HEAD + count * RECORD + LOG_FOOT then number = nil end

--- @section search
--- Finds the first record with a stamp (field 1) or running total (field 8) that is above `bound`
--- after `origin` is subtracted. Stamps and running totals never decrease along the log, so this is
--- a binary search. The steps begin at 1 and double, because the record is usually near the start.
---
--- Inputs: key, value, sealed, count, field, origin, bound, and number and place (the element and
--- the record at which the search begins). Outputs: value (the whole string), and number, place and
--- element of the found record. number is `nil` if the log is a foreign value.
--- @inline rules/sliding_log.whole
if number then
  local low, high, step = number, sealed, 1
  element = value
  while low < high do
    local half = (high - low + (high - low) % 2) / 2
    if step < half then half = step end
    local probe = low + half - 1
    local chunk = call('LINDEX', key, string.format('%d', probe))
    if not chunk or #chunk ~= CHUNK_SIZE or chunk:byte() ~= LOG then low, high = nil, nil break end
    local last = parse('<I7', chunk, CHUNK_SIZE - RECORD + field) - origin
    if last < 0 and field == 8 then last = last + MODULUS end
    if last > bound then high, element = probe, chunk else low = probe + 1 end
    step = step * 2
  end
  if low ~= number then place = 0 end
  number = low

  local len = number == sealed and count or number and CHUNK or 0
  low, high, step = place, len, 1
  while low < high do
    local half = (high - low + (high - low) % 2) / 2
    if step < half then half = step end
    local probe = low + half - 1
    local probed = parse('<I7', element, LOG_HEAD + probe * RECORD + field) - origin
    if probed < 0 and field == 8 then probed = probed + MODULUS end
    if probed > bound then high = probe else low = probe + 1 end
    step = step * 2
  end
  place = low
  if place >= len then number = nil end
end

--- @section undo
--- undo: removes the cost from the record of the charge at `taken_at`, if this record still counts
--- and is one of the newest MAX_UNDO records. The totals of all later records decrease, so the
--- script writes these records again. Output: last_to_expire, the stamp of the record if the record
--- is too old for the undo.
local stamp, undone = taken_at, 0
if grain > 0 then stamp = stamp - stamp % grain + grain end
local place, element, has_rest = oldest_place, nil, false
if is_there and stamp >= oldest_stamp and stamp <= newest_stamp then
  if number < sealed - MAX_UNDO_SEALED then number, place = sealed - MAX_UNDO_SEALED, 0 end
  local field, origin, bound = 1, 0, stamp - 1
  --- @inline rules/sliding_log.search
  if number and (sealed - number) * CHUNK + count - place <= MAX_UNDO then
    local before, record_stamp, record_cost = parse('<I7I7I7', element, LOG_HEAD + place * RECORD - 6)
    record_cost = record_cost - before
    if record_cost < 0 then record_cost = record_cost + MODULUS end
    if record_stamp == stamp then undone = math.min(record_cost, cost) end
    has_rest = undone < record_cost
  elseif number then -- is_out_of_reach
    last_to_expire = stamp
  end
end
if undone > 0 and undone == sum then
  sum, newest_stamp, after = 0, 0, false
elseif undone > 0 then
  -- `later` gets the records after the record of the charge. If a part of the cost of this record
  -- remains, `later` also gets this record.
  local later, part = {}, element
  local from_place = has_rest and place or place + 1
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
  -- The last element of a log that is a list must have at least one record. If an undo has removed
  -- the only record of this element, the previous element becomes the last element.
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
    -- Remove the newest record from `records`, because the code at the end of the rule writes it
    -- together with the foot.
    newest_stamp, total = parse('<I7I7', records, #records - RECORD + 1)
    sum, records = sum - undone, records:sub(1, -RECORD - 1)
  end
end
