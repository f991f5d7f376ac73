-- Leaves out of a string what has expired. In and out: value, first_place, count; gone; number.
--> log_whole.lua
value = pack('<BI7', LOG, gone) .. value:sub(LOG_HEAD + first_place * RECORD + 1)
first_place, count = 0, count - first_place
