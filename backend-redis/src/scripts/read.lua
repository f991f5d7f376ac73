-- What was read from a key (of a list the last element): the value without its block, its kind, and
-- until when it blocks.
local function understand(value, is_list)
  if not value then return nil, NONE, 0 end
  local kind, size, blocked_until = value:byte() or FOREIGN, #value, 0
  if kind >= NONE + BLOCK_FLAG and kind <= INTERVAL + BLOCK_FLAG and size > BLOCK_SIZE then
    kind, size = kind - BLOCK_FLAG, size - BLOCK_SIZE
    blocked_until = parse('<I7', value, size + 1)
    value = string.char(kind) .. value:sub(2, size)
  end
  if size == 22 and (kind == BUCKET or kind == INTERVAL or kind > NONE and kind < LOG)
    or size == 29 and kind == COUNTER
    or size == 1 and kind == NONE
    or size > VALUE_HEAD and kind == LOG and size % RECORD == VALUE_HEAD % RECORD then
    -- No other value of ours is a list.
    if not is_list or kind == LOG then return value, kind, blocked_until end
  end
  return nil, FOREIGN, 0
end

-- What `understand` says of a key, and whether it is a list, where reading it has brought `value`. If
-- the key is not of the type that was expected, the other is tried: the policy may have changed.
local function read_on(key, value, is_list)
  if type(value) == 'table' then
    is_list = not is_list
    if is_list then
      value = redis.pcall('LINDEX', key, -1)
    else
      value = redis.pcall('GET', key)
    end
    if type(value) == 'table' then return nil, FOREIGN, 0, false end
  end
  local kind, blocked_until
  value, kind, blocked_until = understand(value, is_list)
  return value, kind, blocked_until, value and is_list
end
