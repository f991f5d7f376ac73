--- The epoch of the holds on a state is the time between two resets of the state. A state has an
--- epoch only if the value of the state does not contain its holds. An epoch is stored under its
--- own key, in this form:
---
---   | EPOCH 1 | number 16 | ends 7 | refunded 7 | refunded_at 7 |
---
---   number        9 digits of SHA-1 of the key of the first hold's id, and the time of that hold
---   ends          the time until which the epoch lasts
---   refunded      the sum of the refunds since the first hold
---   refunded_at   the time of the last refund
---
--- The number contains a time because an id can be used again.
---
--- A reset removes the epoch. A settlement detects a reset after the hold was made: the epoch is
--- absent, or its number differs from the number in the record of the hold.

--- @section join
--- Adds a new hold to the epoch of each charged state whose value does not contain its holds. If
--- such a state has no epoch, a new epoch begins.
---
--- Inputs: held_and_spent, life, epoch_keys, epoch_values. Output: epochs (for each charge, the
--- number of the epoch).
---
--- An epoch must last as long as the record of the hold. If the epoch ends earlier, the script
--- extends it to 1.5 times the life of the record, so that most holds only read the epoch.
local epochs = {}
for place, epoch_key in ipairs(epoch_keys) do
  local held_cost = parse('<I7', held_and_spent, place * 7 - 6)
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
      --- @inline lib/ttl.text
      call('PSETEX', epoch_key, ttl,
        string.char(EPOCH) .. number .. pack('<I7', epoch_ends) .. refunds)
    end
  end
end
epochs = table.concat(epochs)

--- @section read
--- Reads the epoch of the hold on a state. If the state was reset after the hold was made, the
--- section sets the held cost to 0.
---
--- Inputs: place, epoch_key, record, epochs_at. Outputs: epoch (the number), epoch_values (the
--- value of the epoch by its key), held_cost (0 after a reset).
local epoch =
  record:sub(epochs_at + (place - 1) * EPOCH_NUMBER, epochs_at + place * EPOCH_NUMBER - 1)
if epoch ~= NO_EPOCH then
  local value = redis.pcall('GET', epoch_key)
  if type(value) == 'string' and #value == EPOCH_SIZE
    and value:sub(2, EPOCH_NUMBER + 1) == epoch then
    epoch_values[epoch_key] = value
  else
    held_cost = 0
  end
end

--- @section refund
-- Adds a refund to the epoch of a state, so that a settlement does not refund the same amount
-- again.
local function note_refund(epoch_key, amount)
  local value = redis.pcall('GET', epoch_key)
  if type(value) ~= 'string' or #value ~= EPOCH_SIZE then return end
  amount = math.min(parse('<I7', value, EPOCH_NUMBER + 9) + amount, MODULUS)
  call('SET', epoch_key, value:sub(1, EPOCH_NUMBER + 8) .. pack('<I7I7', amount, now), 'KEEPTTL')
end
