-- Searches a log for the first record whose stamp (field 1) or running total (field 8), counted from
-- `origin`, is above `bound`: both rise. Looks near the start first, where it mostly is.
--
-- In: key, value, sealed, count; field, origin, bound; number, place: where to begin. Out: value, whole;
-- number, place and element of what was found; `nil` for number if the log is broken.
--> log_whole.lua
if number then
  local low, high, step = number, sealed, 1
  element = value
  while low < high do
    local half = (high - low + (high - low) % 2) / 2
    if step < half then half = step end
    local probe = low + half - 1
    local chunk = call('LINDEX', key, string.format('%d', probe))
    if not chunk or #chunk ~= CHUNK_SIZE or chunk:byte() ~= LOG then low, high = nil, nil break end
    local newest = parse('<I7', chunk, CHUNK_SIZE - RECORD + field) - origin
    if newest < 0 and field == 8 then newest = newest + MODULUS end
    if newest > bound then high, element = probe, chunk else low = probe + 1 end
    step = step * 2
  end
  if low ~= number then place = 0 end
  number = low

  local most = number == sealed and count or CHUNK
  low, high, step = place, most, 1
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
  if place >= most then number = nil end
end
