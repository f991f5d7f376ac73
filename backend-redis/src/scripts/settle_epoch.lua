-- Reads the epoch of the hold on a state, if the state does not record its holds. If the state was
-- reset, the hold has ended: nothing is held any more. The inputs are place, epoch_key, record,
-- epochs_at and the held cost. The outputs are the held cost, epoch (its number) and epoch_values.
local epoch = record:sub(epochs_at + (place - 1) * EPOCH_NUMBER, epochs_at + place * EPOCH_NUMBER - 1)
if epoch ~= NO_EPOCH then
  local value = redis.pcall('GET', epoch_key)
  if type(value) == 'string' and #value == EPOCH_SIZE and value:sub(2, EPOCH_NUMBER + 1) == epoch then
    epoch_values[epoch_key] = value
  else
    held_cost = 0
  end
end
