--- Functions that read and check the value of a key, or add a block to a value. The README of this
--- folder describes the layouts of values.

--- @section read
-- Decodes a value, which is a string or the last element of a list. Returns the value without its
-- block, the kind of the value, and the time until which the value blocks. The kind of a foreign
-- value is FOREIGN.
local function decode(value, is_list)
  if not value then return nil, NONE, 0 end
  local kind, size, blocked_until = value:byte() or FOREIGN, #value, 0
  if kind >= NONE + BLOCK_FLAG and kind <= SLOTS + BLOCK_FLAG and size > BLOCK_SIZE then
    kind, size = kind - BLOCK_FLAG, size - BLOCK_SIZE
    blocked_until = parse('<I7', value, size + 1)
    value = string.char(kind) .. value:sub(2, size)
  end
  local is_valid
  if kind == LOG then
    is_valid = size >= LOG_HEAD + LOG_END and (size - LOG_HEAD - LOG_END) % RECORD == 0
      and value:byte(size) == LOG
  elseif not is_list then -- Only a log can be a list.
    is_valid = size == WINDOW_SIZE and kind > NONE and kind < LOG
      or size == COUNTER_SIZE and kind == COUNTER
      or size == BUCKET_SIZE and kind == BUCKET
      or size == INTERVAL_SIZE and kind == INTERVAL
      --- @when lapse
      or size == SLOTS_SIZE and kind == SLOTS
      --- @end
      or size == 1 and kind == NONE
  end
  if is_valid and blocked_until < MAX_EXACT + MAX_SPAN then return value, kind, blocked_until end
  return nil, FOREIGN, 0
end

-- Reads a key. Returns the results of `decode`, and whether the key is a list.
local function read(key)
  local value, is_list = redis.pcall('GET', key), false
  if type(value) == 'table' then value, is_list = redis.pcall('LINDEX', key, '-1'), true end
  if type(value) == 'table' then return nil, FOREIGN, 0, false end
  local kind, blocked_until
  value, kind, blocked_until = decode(value, is_list)
  return value, kind, blocked_until, is_list and value ~= nil
end

--- @section block
-- Returns a value with a block that lasts until `blocked_until`. If `blocked_until` is 0, returns
-- the value unchanged.
local function blocking(value, blocked_until)
  if blocked_until == 0 then return value end
  return string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
end
