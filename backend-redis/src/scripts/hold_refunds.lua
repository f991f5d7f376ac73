-- Where states have holds, ARGV[2] has after the costs for each charge the maximum of open holds (4
-- bytes), or 0 if its policy does not refund lapsed holds.
local maxima = (#id - ID_REQUEST - 7) / 11 * 4
maxima, id = id:sub(-maxima), id:sub(1, -maxima - 1)
local function max_open_of(place)
  return (struct.unpack('<I4', maxima, place * 4 - 3))
end
