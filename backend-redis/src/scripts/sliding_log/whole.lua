-- Reads all of a string of which only the end was read. In and out: value, key, count; number: `nil` if the
-- log is not valid.
if #value == LOG_END then value = call('GET', key) end
if #value ~= LOG_HEAD + count * RECORD + LOG_FOOT then number = nil end
