-- Joins the epoch of each state that does not record its holds, or begins one. The inputs are
-- hold, life, epoch_keys and epoch_values. The output is epochs: the number of the epoch of each
-- charge.
--
-- Value of an epoch: | EPOCH 1 | number 16 | ends 7 | refunded 7 | refunded_at 7 |. The number is from SHA-1 of the key of the
-- id of its first hold, and the time of that hold, because an id can be used again. A reset removes
-- the epoch, so that a settlement recognizes the reset. An epoch that has to last longer lasts half
-- as long again as it needs to, so that most holds only read it.
local epochs = {}
for place, epoch_key in ipairs(epoch_keys) do
  local held_cost = parse('<I7', hold, place * 7 - 6)
  epochs[place] = NO_EPOCH
  if held_cost > 0 and held_cost < NOT_COUNTED and not (REFUNDS_LAPSED) then
    local number, epoch_ends, refunds = nil, 0, pack('<I7I7', 0, 0)
    local value = epoch_values[place]
    if value then epoch_ends = parse('<I7', value, EPOCH_NUMBER + 2) end
    if epoch_ends > now then
      number, refunds = value:sub(2, EPOCH_NUMBER + 1), value:sub(EPOCH_NUMBER + 9)
    else
      number, epoch_ends = redis.sha1hex(id_key):sub(1, EPOCH_NUMBER - 7) .. pack('<I7', now), 0
    end
    epochs[place] = number
    if epoch_ends < now + life then
      epoch_ends = math.min(now + life + (life - life % 2) / 2, MODULUS)
      local ends, ttl = epoch_ends
      --> ttl.lua
      call('PSETEX', epoch_key, ttl, string.char(EPOCH) .. number .. pack('<I7', epoch_ends) .. refunds)
    end
  end
end
epochs = table.concat(epochs)
