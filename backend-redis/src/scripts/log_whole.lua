-- Of a string only the end may have been read. In and out: value, key, count; number, `nil` if the log
-- is broken.
if #value == LOG_END then value = call('GET', key) end
if #value ~= LOG_HEAD + count * RECORD + LOG_FOOT then number = nil end
