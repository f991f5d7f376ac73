-- A charge beyond the limit to a log that has its maximum number of records: the newest one becomes a record
-- of now, so that it counts longer. In: max_records (`nil` if it is no such charge), stamp.
if max_records and is_there and (sealed - number) * CHUNK + count - oldest_place >= max_records then
  if oldest_stamp == newest_stamp then oldest_stamp = stamp end
  newest_stamp = stamp
end
