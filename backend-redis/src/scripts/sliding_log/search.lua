-- Searches a log for the first record whose stamp (field 1) or running total (field 8), counted from
-- `origin`, is above `bound`. Both rise, so this is a binary search; as the record is usually near the
-- start, the steps begin at 1 and double.
--
-- In: key, value, sealed, count; field, origin, bound; number, place: the element and the record to begin
-- at. Out: value, whole; number, place and element of the record; number is `nil` if the log is not valid.
--> sliding_log/whole.lua
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
    local its = parse('<I7', element, LOG_HEAD + probe * RECORD + field) - origin
    if its < 0 and field == 8 then its = its + MODULUS end
    if its > bound then high = probe else low = probe + 1 end
    step = step * 2
  end
  place = low
  if place >= len then number = nil end
end
