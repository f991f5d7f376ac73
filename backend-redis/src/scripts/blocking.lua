-- A value with the time until which it blocks, if it does.
local function blocking(value, blocked_until)
  if blocked_until == 0 then return value end
  return string.char(value:byte() + BLOCK_FLAG) .. value:sub(2) .. pack('<I7', blocked_until)
end
