-- The holds on a state, of policies that give back what is held once its time is over. Twin of
-- core/src/engine/state_holds.rs.
--
-- They stand in the state's own value, whose kind is greater by HOLDS_FLAG, behind the state and its block:
--
--   62 each                34
--   +------+-- … --+------+------+
--   | hold |       | hold | foot |     in the order in which they lapse
--   +------+-- … --+------+------+
--
--   hold: | key 20 | taken_at 7 | cost 7 | spent 7 | lapses_at 7 | expires_at 7 | given_back 7 |
--   foot: | rule 1 | p2 7 | p3 7 | p4 7 | ends 7 | count 4 | HOLDS 1 |
--
--   key         SHA-1 of the key of the hold's id
--   given_back  what was given back when it lapsed; NOT_COUNTED before that
--   rule, p2 …  those by which the state was written last, and by which what lapses is given back
--   ends        time until which the key lives at least: no hold is known for longer
--
-- Scripts that know no holds take such a value for one that is not ours, and leave it as it is.

-- The holds of the value that was decoded last: `list`, and the numbers of the foot. The state and `list` are then as if
-- each hold had been given back at its time; they are written when the state is.
local holds_in_value = nil
local decode_state = decode
decode = function(value, is_list)
  holds_in_value = nil
  local size = value and #value or 0
  if size <= HOLDS_FOOT or value:byte() < NONE + HOLDS_FLAG or value:byte(size) ~= HOLDS then
    return decode_state(value, is_list)
  end
  local rule, p2, p3, p4, ends, count = parse('<BI7I7I7I7I4', value, size - HOLDS_FOOT + 1)
  local state_size = size - HOLDS_FOOT - count * STATE_HOLD
  local divides = p2 > 0 and (p3 > 0 or rule <= SLIDING_LOG) and (p4 > 0 or rule ~= TOKEN_BUCKET)
  if state_size < 1 or count == 0 or not RULES[rule] or not divides then return nil, FOREIGN, 0 end
  local list = value:sub(state_size + 1, size - HOLDS_FOOT)
  holds_in_value = { list = list, rule = rule, p2 = p2, p3 = p3, p4 = p4, ends = ends }
  return decode_state(string.char(value:byte() - HOLDS_FLAG) .. value:sub(2, state_size), is_list)
end

-- A value with holds, if there are any.
local function holding(value, holds)
  if holds.list == '' then return value end
  return string.char(value:byte() + HOLDS_FLAG) .. value:sub(2) .. holds.list
    .. pack('<BI7I7I7I7I4B', holds.rule, holds.p2, holds.p3, holds.p4, holds.ends, #holds.list / STATE_HOLD, HOLDS)
end

-- Takes back what is left of a part of a take, by the rule that wrote the state; `now` is the time of the lapse. Returns
-- the state after that, and how much it was.
local time = now
local function take_back(holds, value, kind, key, is_list, cost, taken_at, taken)
  local rule, p2, p3, p4 = holds.rule, holds.p2, holds.p3, holds.p4
  local function by_rule(its_cost, op)
    return RULES[rule](value, kind, its_cost, op, taken, taken_at, math.huge, p2, p3, p4, key, is_list)
  end
  local _, a, b, c = by_rule(0, PEEK)
  local before, unit = held(rule, a, b, c, p2)
  local _, _, _, _, _, after, expires_at, plan = by_rule(cost, UNDO)
  if after == nil then return value, kind, is_list, 0 end
  if plan then
    -- Of a list only the end is at hand, so it is written at once: without its block and holds, which the caller adds.
    local lapses_at = now
    now = time
    write_list(key, value, is_list, after, math.max(expires_at, holds.ends), plan)
    now, holds.is_written = lapses_at, true
  end
  value = after or string.char(NONE)
  kind, is_list = value:byte(), plan and true
  _, a, b, c = by_rule(0, PEEK)
  local amount = before - held(rule, a, b, c, p2)
  return value, kind, is_list, (amount - amount % unit) / unit
end

-- Gives back what has lapsed, hold by hold, each at its time, and forgets holds that have expired. Returns the state after
-- that.
local function lapse(holds, value, kind, key, is_list)
  local list, at, kept = holds.list, 1, {}
  while at < #list do
    local taken_at, cost, spent, lapses_at, expires_at, given_back =
      parse('<I7I7I7I7I7I7', list, at + HOLD_KEY)
    if lapses_at > time then break end
    if given_back == NOT_COUNTED then
      given_back = 0
      if spent < cost then
        now = lapses_at
        value, kind, is_list, given_back =
          take_back(holds, value, kind, key, is_list, cost - spent, taken_at, cost)
        now = time
      end
    end
    if expires_at > time then
      kept[#kept + 1] = list:sub(at, at + HOLD_GIVEN_BACK - 1) .. pack('<I7', given_back)
    end
    at = at + STATE_HOLD
  end
  if at > 1 then holds.list, holds.has_lapsed = table.concat(kept) .. list:sub(at), true end
  if holds.list == '' then holds.ends = 0 end
  return value, kind, is_list
end

-- The place of the hold with a key, or `nil`.
local function find(holds, hold_key)
  local at = holds.list:find(hold_key, 1, true)
  while at and (at - 1) % STATE_HOLD > 0 do at = holds.list:find(hold_key, at + 1, true) end
  return at
end

local function forget(holds, at)
  holds.list = holds.list:sub(1, at - 1) .. holds.list:sub(at + STATE_HOLD)
  if holds.list == '' then holds.ends = 0 end
end

-- Adds a hold, behind those that lapse before it or with it.
local function keep(holds, hold_key, taken_at, cost, spent, lapses_at, expires_at, given_back)
  local list, low, high = holds.list, 0, #holds.list / STATE_HOLD
  while low < high do
    local half = (low + high - (low + high) % 2) / 2
    if parse('<I7', list, half * STATE_HOLD + HOLD_LAPSES_AT + 1) <= lapses_at then low = half + 1 else high = half end
  end
  local hold = hold_key .. pack('<I7I7I7I7I7I7', taken_at, cost, spent, lapses_at, expires_at, given_back)
  holds.list = list:sub(1, low * STATE_HOLD) .. hold .. list:sub(low * STATE_HOLD + 1)
  holds.ends = math.max(holds.ends, expires_at)
end

-- SHA-1 of the key of an id, in binary.
local function hold_key_of(id_key)
  return (redis.sha1hex(id_key):gsub('..', function(digits) return string.char(tonumber(digits, 16)) end))
end

-- Part of the reply to a charge: the number of holds that are still to lapse; if there are any, the size of the state and
-- the state (none of a list), and these holds. From this the core computes what a wait counts on.
local function open_holds(holds, value, is_list)
  local list, at = holds and holds.list or '', 1
  while at < #list and parse('<I7', list, at + HOLD_LAPSES_AT) <= time do at = at + STATE_HOLD end
  if at > #list then return pack('<I4', 0) end
  local state = is_list and '' or value
  return pack('<I4I4', (#list - at + 1) / STATE_HOLD, #state) .. state .. list:sub(at)
end
