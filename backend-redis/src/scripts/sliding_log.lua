-- Sliding log: admits iff the costs of the records with time > t - W, + c, are at most L. Twin of
-- core/src/algorithm/sliding_log.rs.
--
-- Value: kind, total before the first record; records of a stamp and a running total, oldest first;
-- then what a decision needs: of the oldest record that counted at the last write the total before it,
-- its place (two bytes), its stamp and its total; how many elements are before this one (four bytes);
-- how many records are in this one (two); until when the key lives at least; kind.
-- Only differences of totals have a meaning.
--
-- A log that may grow long is a list: its last element is such a value, with at most CHUNK records; the
-- elements before have just CHUNK, and nothing behind them.
--
-- So a decision reads and writes the end of the string, or the last element of the list; if something
-- has expired, it reads the next record, or the first element. What has expired stays where it is: in a
-- string until it is half of it, in a list until a whole element has.
local limit, window, grain, long = p1, p2, p3, p4
local newest, total, gone, first_place, first_stamp, first_total = 0, 0, 0, 0, 0, 0
local sealed, count, lived_until, is_there = 0, 0, 0, false
if kind == LOG then
  newest, total, gone, first_place, first_stamp, first_total, sealed, count, lived_until =
    parse('<I7I7I7I2I7I7I4I2I7', value, #value - LOG_END + 1)
  is_there = true
end

-- The records that count: from the first one, in the element `number`, which is `nil` if the log is
-- broken.
local at, sum, number = now, 0, 0
if is_there then
  -- A clock behind the newest record (or its grain) stands there.
  if newest - grain > at then at = newest - grain end
  local horizon = at - window
  if newest <= horizon then
    is_there = false
  elseif first_stamp <= horizon then
    local field, origin, bound, place, element = 1, 0, horizon, first_place + 1, nil
    if #value == LOG_END then -- Mostly it is just a few that have expired.
      local start = LOG_HEAD + place * RECORD - 7
      local some = call('GETRANGE', key, string.format('%d', start), string.format('%d', start + 62))
      -- Before the first record of an element stands a total as well.
      for byte = 1, #some - 20, RECORD do
        gone, first_stamp, first_total = parse('<I7I7I7', some, byte)
        if first_stamp > horizon then break end
        place = place + 1
      end
    end
    if first_stamp <= horizon then
      --> log_search.lua
      if number then
        gone, first_stamp, first_total = parse('<I7I7I7', element, LOG_HEAD + place * RECORD - 6)
      end
    end
    first_place = place
  end
  sum = total - gone
  if sum < 0 then sum = sum + MODULUS end
  -- No log of ours has such numbers; with one, a sum could stay below every limit.
  if math.max(total, gone, newest) > MODULUS then number = nil end
end
if not is_there then newest, total, gone, sum, number = 0, 0, 0, 0, sealed end
-- Somebody else may have written to the list.
if is_list and call('LLEN', key) ~= sealed + 1 then number = nil end

-- wait
admits = cost <= limit and sum + cost <= limit

local frees, records, offset, as_list = 0, nil, nil, is_list
local from, to, chunk, chunks = number, -1, nil, nil
if not number then
  admits = nil
elseif does == ACQUIRE and admits then -- take
  local stamp = grain > 0 and at - at % grain + grain or at
  local before = total
  total = total - (MODULUS - cost)
  if total < 0 then total = before + cost end
  sum, sealed = sum + cost, sealed - number
  if not is_there then
    records, as_list = pack('<BI7', LOG, before), long == 1
    first_place, first_stamp, count = 0, stamp, 1
  else
    if long == 1 and not is_list then
      --> log_lengthen.lua
    elseif not is_list and first_place >= FEW and first_place * 2 > count then
      --> log_shorten.lua
    end
    if newest == stamp then
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
  if first_stamp == stamp then first_total = total end
  newest = stamp
elseif does == REFUND and cost >= sum then -- give_back
  sum, newest, after = 0, 0, false
elseif does == REFUND then
  sum = sum - cost
  local field, origin, bound, place, element = 8, gone, sum - 1, first_place, nil
  --> log_search.lua
  if number then
    to, sealed, count = number, number - from, place + 1
    records = element:sub(1, LOG_HEAD + place * RECORD)
    newest = parse('<I7', element, #records + 1)
    total = gone - (MODULUS - sum)
    if total < 0 then total = gone + sum end
    if first_stamp == newest then first_total = total end
  end
elseif does == UNDO then -- take_back
  --> log_take_back.lua
elseif not admits and cost <= limit then
  -- What has to go before there is room: mostly the first.
  local too_much = sum + cost - limit
  local of_first = first_total - gone
  if of_first < 0 then of_first = of_first + MODULUS end
  frees = first_stamp
  if of_first < too_much then
    local field, origin, bound, place, element = 8, gone, too_much - 1, first_place, nil
    --> log_search.lua
    frees = number and parse('<I7', element, LOG_HEAD + place * RECORD + 1)
  end
end
if not number then
  admits = nil
elseif records then
  lives_until = newest + window
  local was_there, share = is_there, 8
  --> outlive.lua
  after = pack('<I7I7I7I2I7I7I4I2I7B', newest, total, gone, first_place, first_stamp, first_total,
    sealed, count, lives_until, LOG)
  if not offset then after = records .. after end
end
a, b, c = sum, newest, frees
