-- Sliding log: admits iff the costs of the records with time > t - W, + c, are at most L. Twin of
-- core/src/algorithm/sliding_log.rs.
--
-- Value: kind, window, grain, gone, before, sealed; then records of a stamp and a running total, oldest
-- first. Only differences of totals have a meaning: `before` is the total before the first record,
-- `gone` that before the first which still counted at the last write.
--
-- A log that may grow beyond a chunk is a list: `sealed` chunks of just 128 records, each led by its
-- own `before`, and last the value as above with the newest records. So a decision reads and writes
-- at most a few chunks, however long the log is.
-- The place of the first record, from `low` on, whose stamp (field 1) or total (field 8), counted from
-- an origin, is above a bound; the count of records if none is. Both rise. Looks near `low` first,
-- where it mostly is.
local function place_above(element, head, low, field, origin, bound)
  local high, step = (#element - head) / RECORD, 1
  while low < high do
    local half = (high - low + (high - low) % 2) / 2
    if step < half then half = step end
    local probe = low + half - 1
    local number = parse('<I7', element, head + probe * RECORD + field) - origin
    if number < 0 and field == 8 then number = number + MODULUS end
    if number > bound then high = probe else low = probe + 1 end
    step = step * 2
  end
  return low
end

-- A sealed chunk of a list; `nil` if it is none.
local function chunk_at(key, number)
  local chunk = call('LINDEX', key, number)
  if chunk and #chunk == CHUNK_HEAD + CHUNK * RECORD then return chunk end
end

-- As `place_above`, in a whole log from a place in the element `number` on: also the number of the
-- element, itself, and where its records start; `nil` if an element is broken.
local function find(key, value, sealed, number, low, field, origin, bound)
  local from, last, step = number, sealed, 1
  local element, head = value, VALUE_HEAD
  while number < last do
    local half = (last - number + (last - number) % 2) / 2
    if step < half then half = step end
    local probe = number + half - 1
    local chunk = chunk_at(key, probe)
    if not chunk then return nil end
    local newest = parse('<I7', chunk, #chunk - RECORD + field) - origin
    if newest < 0 and field == 8 then newest = newest + MODULUS end
    if newest > bound then
      last, element, head = probe, chunk, CHUNK_HEAD
    else
      number = probe + 1
    end
    step = step * 2
  end
  if number > from then low = 0 end
  return number, place_above(element, head, low, field, origin, bound), element, head
end

-- Besides what every rule answers: for a list, what is to be done to it.
local function sliding_log(value, kind, cost, does, _, limit, window, grain, long, key)
  local gone, before, sealed, newest, total = 0, 0, 0, 0, 0
  local is_there = false
  if kind == LOG then
    local its_window, its_grain
    its_window, its_grain, gone, before, sealed = parse('<I7I7I7I7I2', value, 2)
    is_there = its_window == window and its_grain == grain
    if is_there then
      newest, total = parse('<I7I7', value, #value - RECORD + 1)
    else
      -- Of another shape: only how much of a list has to go is still of interest.
      gone, before = 0, 0
    end
  end

  -- The records that count, from `first` on (in the element `number`), and their sum.
  local at, sum = now, 0
  local number, first, before_first = sealed, 0, before
  if is_there then
    -- A clock behind the newest record (or its grain) stands there.
    at = math.max(now, newest - grain)
    if newest > at - window then
      local element, head
      number, first, element, head = find(key, value, sealed, 0, 0, 1, 0, at - window)
      if not number then return nil end
      if first > 0 then
        before_first = parse('<I7', element, head + first * RECORD - 6)
      elseif number < sealed then
        before_first = parse('<I7', element)
      end
      sum = total - before_first
      if sum < 0 then sum = sum + MODULUS end
      local most = total - gone
      if most < 0 then most = most + MODULUS end
      if sum > most then
        -- What had gone at the last write is gone, although the clock may have stepped back.
        number, first = find(key, value, sealed, number, first, 8, before_first, sum - most)
        if not number then return nil end
        before_first, sum = gone, most
      end
    else
      is_there, before_first = false, total
    end
  end

  -- wait
  local admits = cost <= limit and sum + cost <= limit

  if does == REFUND then -- give_back
    local keep = sum - cost
    if keep <= 0 then return admits, 0, 0, 0, false end
    local last, place, element, head =
      find(key, value, sealed, number, first, 8, before_first, keep - 1)
    if not last then return nil end
    local stamp = parse('<I7', element, head + place * RECORD + 1)
    if last > number then
      first, before = 0, head == CHUNK_HEAD and parse('<I7', element) or before
    else
      before = before_first
    end
    local records = element:sub(head + first * RECORD + 1, head + place * RECORD)
    local left = last - number
    local after = before_first - (MODULUS - keep)
    if after < 0 then after = before_first + keep end
    gone = before_first
    return admits, keep, stamp, 0,
      pack('<BI7I7I7I7I2', LOG, window, grain, gone, before, left)
        .. records .. pack('<I7I7', stamp, after),
      stamp + window, (long == 1 or left > 0) and { from = number, to = last, replaces = true }
  end

  if does == ACQUIRE and admits then -- take
    local stamp = grain > 0 and at - at % grain + grain or at
    local records, left, chunk = '', sealed - number, nil
    local after = total - (MODULUS - cost)
    if after < 0 then after = total + cost end
    gone = before_first
    if is_there then
      -- Records before `first` go, if they are in this element; else whole chunks do.
      if left == 0 then before = before_first else first = 0 end
      records = value:sub(VALUE_HEAD + first * RECORD + 1, newest == stamp and -RECORD - 1 or -1)
    else
      before = total
    end
    if long == 1 and #records >= CHUNK * RECORD then
      chunk = pack('<I7', before) .. records
      records, before, left = '', total, left + 1
    end
    return admits, sum + cost, stamp, 0,
      pack('<BI7I7I7I7I2', LOG, window, grain, gone, before, left)
        .. records .. pack('<I7I7', stamp, after),
      stamp + window, (long == 1 or left > 0) and {
        from = number, to = -1, chunk = chunk, replaces = value ~= nil,
      }
  end

  local frees = 0
  if not admits and cost <= limit then
    local found, place, element, head =
      find(key, value, sealed, number, first, 8, before_first, sum - limit + cost - 1)
    if not found then return nil end
    frees = parse('<I7', element, head + place * RECORD + 1)
  end
  return admits, sum, is_there and newest or 0, frees
end

-- Writes a log that is a list: see the end of `sliding_log`.
local function write_list(key, value, plan, is_list, life)
  if not is_list then
    -- Nothing is unlinked without need: after a first write, a lack of memory would go unnoticed.
    if plan.replaces then call('UNLINK', key) end
    if plan.chunk then call('RPUSH', key, plan.chunk) end
    call('RPUSH', key, value)
  else
    if plan.from > 0 or plan.to >= 0 then call('LTRIM', key, plan.from, plan.to) end
    call('LSET', key, -1, plan.chunk or value)
    if plan.chunk then call('RPUSH', key, value) end
  end
  call('PEXPIRE', key, life)
end
