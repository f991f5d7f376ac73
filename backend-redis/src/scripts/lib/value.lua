--- Functions that read and check the value of a key, or add a block and offenses to a value. The
--- README of this folder describes the layouts of values.

--- @section read
-- Decodes a value, which is a string or the last element of a list. Returns the value without its
-- block, the kind of the value, the time until which the value blocks, and the offenses or `nil`.
-- The kind of a foreign value is FOREIGN.
--- A script for one charge does not know offenses. For such a script, a value with offenses is
--- foreign, so that a general script decides the call.
local function decode(value, is_list)
  if not value then return nil, NONE, 0 end
  local kind, size, blocked_until, offenses = value:byte() or FOREIGN, #value, 0, nil
  --- @when general
  local forgotten_at = MODULUS
  if kind >= NONE + OFFENSES_FLAG and kind <= TOPPED_UP + OFFENSES_FLAG
    and size > OFFENSES_SIZE + BLOCK_SIZE then
    kind, size = kind - OFFENSES_FLAG + BLOCK_FLAG, size - OFFENSES_SIZE
    local level
    level, forgotten_at = parse('<BI7', value, size + 1)
    if level == 0 or level > MAX_LEVEL or forgotten_at >= MODULUS then return nil, FOREIGN, 0 end
    offenses = value:sub(size + 1)
  end
  --- @end
  if kind >= NONE + BLOCK_FLAG and kind <= TOPPED_UP + BLOCK_FLAG and size > BLOCK_SIZE then
    kind, size = kind - BLOCK_FLAG, size - BLOCK_SIZE
    blocked_until = parse('<I7', value, size + 1)
    --- @when general
    if blocked_until > forgotten_at then return nil, FOREIGN, 0 end
    --- @end
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
      or size == CALENDAR_SIZE and kind == CALENDAR
      or size == DRIFT_SIZE and kind == DRIFT
      or kind == TOPPED_UP and size >= TOPPED_UP_SIZE
        and size <= TOPPED_UP_SIZE + MAX_GRANTS * GRANT_SIZE
        and size == TOPPED_UP_SIZE + parse('<I7', value, TOPPED_UP_SIZE - 6) * GRANT_SIZE
      --- @when lapse
      or size == SLOTS_SIZE and kind == SLOTS
      --- @end
      or size == 1 and kind == NONE
  end
  if is_valid and blocked_until < MAX_EXACT + MAX_SPAN then
    return value, kind, blocked_until, offenses
  end
  return nil, FOREIGN, 0
end

-- Reads a key. Returns the value, its kind, the time until which it blocks, whether the key is a
-- list or a hash, and the offenses (see `decode`).
local function read(key)
  local value, is_list = redis.pcall('GET', key), false
  if type(value) == 'table' then value, is_list = redis.pcall('LINDEX', key, '-1'), true end
  --- @when general
  if type(value) == 'table' then
    value = redis.pcall('HMGET', key, '')[1]
    if value and #value == POOL_HEAD and value:byte() == POOL then return value, POOL, 0, true end
    return nil, FOREIGN, 0, false
  end
  --- @end
  if type(value) == 'table' then return nil, FOREIGN, 0, false end
  local kind, blocked_until, offenses
  value, kind, blocked_until, offenses = decode(value, is_list)
  return value, kind, blocked_until, is_list and value ~= nil, offenses
end

--- @section block
-- Returns a value with offenses and with a block that lasts until `blocked_until`. If
-- `blocked_until` is 0 and `offenses` is `nil`, returns the value unchanged.
local function blocking(value, blocked_until, offenses)
  --- @when general
  if offenses then
    return string.char(value:byte() + OFFENSES_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
      .. offenses
  end
  --- @end
  if blocked_until == 0 then return value end
  return string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
end

--- @section offenses
-- Returns the time at which the offenses are forgotten, or 0 if there are no offenses.
local function forgotten_at(offenses)
  return offenses and parse('<I7', offenses, 2) or 0
end

-- Returns the number of offenses that are not forgotten.
local function level_of(offenses)
  return offenses and now < forgotten_at(offenses) and offenses:byte() or 0
end

-- Returns the offenses, or `nil` if they are forgotten.
local function remembered(offenses)
  return level_of(offenses) > 0 and offenses or nil
end
