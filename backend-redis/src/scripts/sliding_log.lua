-- Sliding log: admits iff the costs of the records with time > t - W, + c, are at most L. Twin of
-- core/src/algorithm/sliding_log.rs, on another data structure: there a queue, from which expired
-- records are dropped at each take; here bytes of which only the end is read and written.
--
-- A log of at most 128 records is a string. Bytes:
--
--   1     7             14 each                     14              37
--   +-----+-------------+--------+--------+-- … --+---------------+------+
--   | LOG | total       | record | record |       | newest record | foot |
--   |     | before them |        |        |       |               |      |
--   +-----+-------------+--------+--------+-- … --+---------------+------+
--   '--- LOG_HEAD: 8 ---'                         '----- LOG_END: 51 ----'
--
--   record: | stamp 7 | total 7 |                           oldest record first
--   foot:   | total_before 7 | oldest_place 2 | oldest_stamp 7 | oldest_total 7 |
--           | sealed 4 | count 2 | expires_at 7 | LOG 1 |
--
--   stamp         time of the record: of the request, or the end of its grain
--   total         running total, up to and with the record; only differences have a meaning
--   oldest_…      the oldest record that counted at the last write: its place in its element (from 0),
--                 stamp and total
--   total_before  running total before that record
--   sealed        number of elements before this one (0 in a string)
--   count         number of records in this element
--   expires_at    time until which the key lives at least
--
-- A log that may need more records is a list. Its last element has the bytes above, with at most CHUNK
-- records. Each element before it is sealed: it has exactly CHUNK records and no foot.
--
-- So a decision reads and writes the end of the string, or the last element of the list. If a record
-- has expired since the last write, it also reads the next records, or the element that has them.
-- Expired records stay: in a string until they are half of it, in a list until a whole element has expired.
local limit, window, grain, long = p1, p2, p3, p4
local newest_stamp, total, total_before, oldest_place, oldest_stamp, oldest_total = 0, 0, 0, 0, 0, 0
local sealed, count, expires_at_before, is_there = 0, 0, 0, false
if kind == LOG then
  newest_stamp, total, total_before, oldest_place, oldest_stamp, oldest_total, sealed, count,
    expires_at_before = parse('<I7I7I7I2I7I7I4I2I7', value, #value - LOG_END + 1)
  is_there = true
end

-- first_counted: moves oldest_… to the oldest record that counts, which is in the element `number` (from
-- 0); `nil` if the log is not valid.
local at, sum, number, oldest_cost = now, 0, 0, 0
if is_there then
  -- check: the foot agrees with the size of the value, if all of the value was read.
  local size = LOG_HEAD + count * RECORD + LOG_FOOT
  if is_list and count > CHUNK or not is_list and sealed > 0 or #value ~= size and #value ~= LOG_END
    or oldest_place >= count and (sealed == 0 or oldest_place >= CHUNK) then
    number = nil
  end
end
if is_there and number then
  -- not_before_the_last: a clock behind the newest record (or the start of its grain) stands there.
  if newest_stamp - grain > at then at = newest_stamp - grain end
  local horizon = at - window
  if newest_stamp <= horizon then
    is_there = false
  elseif oldest_stamp <= horizon then
    local field, origin, bound, place, element = 1, 0, horizon, oldest_place + 1, nil
    if #value == LOG_END then -- Usually few records have expired: reads the next ones.
      local start = LOG_HEAD + place * RECORD - 7
      local excerpt = call('GETRANGE', key, string.format('%d', start), string.format('%d', start + 62))
      -- Before each record is a total: that of the record before it, or of the head.
      for byte = 1, #excerpt - 20, RECORD do
        total_before, oldest_stamp, oldest_total = parse('<I7I7I7', excerpt, byte)
        if oldest_stamp > horizon then break end
        place = place + 1
      end
    end
    if oldest_stamp <= horizon then
      --> sliding_log/search.lua
      if number then
        total_before, oldest_stamp, oldest_total =
          parse('<I7I7I7', element, LOG_HEAD + place * RECORD - 6)
      end
    end
    oldest_place = place
  end
  sum = total - total_before
  if sum < 0 then sum = sum + MODULUS end
  -- check: the newest record is the last one that counts, and each record has a cost.
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
-- Another program may have written to the list.
if is_list and call('LLEN', key) ~= sealed + 1 then number = nil end

-- wait
admits = cost <= limit and sum + cost <= limit

local last_to_go, records, offset, as_list = 0, nil, nil, is_list
local from, to, chunk, chunks = number, -1, nil, nil
if not number then
  admits = nil
elseif op == ACQUIRE and admits then -- take
  local stamp = grain > 0 and at - at % grain + grain or at
  --> sliding_log/merge.lua
  local before = total
  total = total - (MODULUS - cost)
  if total < 0 then total = before + cost end
  sum, sealed = sum + cost, sealed - number
  if not is_there then
    records, as_list = pack('<BI7', LOG, before), long == 1
    oldest_place, oldest_stamp, count = 0, stamp, 1
  else
    if not is_list and (long == 1 or oldest_place >= MIN_EXPIRED and oldest_place * 2 > count) then
      -- Drops the expired records of a string.
      --> sliding_log/whole.lua
      value = pack('<BI7', LOG, total_before) .. value:sub(LOG_HEAD + oldest_place * RECORD + 1)
      oldest_place, count = 0, count - oldest_place
      if long == 1 then -- The policy now allows more records than a string may have: makes a list of it.
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
elseif op == REFUND and cost >= sum then -- give_back
  sum, newest_stamp, after = 0, 0, false
elseif op == REFUND then
  sum = sum - cost
  local field, origin, bound, place, element = 8, total_before, sum - 1, oldest_place, nil
  --> sliding_log/search.lua
  if number then
    to, sealed, count = number, number - from, place + 1
    records = element:sub(1, LOG_HEAD + place * RECORD)
    newest_stamp = parse('<I7', element, #records + 1)
    total = total_before - (MODULUS - sum)
    if total < 0 then total = total_before + sum end
    if oldest_stamp == newest_stamp then oldest_total = total end
  end
elseif op == UNDO then -- take_back
  --> sliding_log/undo.lua
elseif not admits and cost <= limit then
  -- The record that must expire before there is room: usually the oldest.
  local too_much = sum + cost - limit
  last_to_go = oldest_stamp
  if oldest_cost < too_much then
    local field, origin, bound, place, element = 8, total_before, too_much - 1, oldest_place, nil
    --> sliding_log/search.lua
    last_to_go = number and parse('<I7', element, LOG_HEAD + place * RECORD + 1)
  end
end
if not number then
  admits = nil
elseif records then
  expires_at = newest_stamp + window
  local was_there, share = is_there, 8
  --> ttl_slack.lua
  after = pack('<I7I7I7I2I7I7I4I2I7B', newest_stamp, total, total_before, oldest_place, oldest_stamp,
    oldest_total, sealed, count, expires_at, LOG)
  if not offset then after = records .. after end
end
a, b, c = sum, newest_stamp, last_to_go
