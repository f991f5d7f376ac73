--- Fair pool: all members together are charged at most limit per window. Each member has a share,
--- which no other member can use. core/src/algorithm/fair_pool.rs decides in the same way, and
--- describes the shares. lib/rules.lua describes the inputs and outputs.
---
--- A state is a hash, so that a script reads and writes only the head and one member. The empty
--- field has the head, and the field of a member has the id of the member as its name:
---
---   |  1   |  7   |   7   |    7     |  7   |    7    |
---   +------+------+-------+----------+------+---------+
---   | POOL | ends | total | reserved | rest | weights |
---   +------+------+-------+----------+------+---------+
---   |---------------- POOL_HEAD: 36 ------------------|
---
---   |     14     |   2    |   7    |  7   |   7   |
---   +------------+--------+--------+------+-------+
---   | id (field) | weight | demand | used | share |
---   +------------+--------+--------+------+-------+
---                |------- POOL_MEMBER: 23 --------|
---
---   total       the cost that all members were charged in the window
---   reserved    the unused part of all shares
---   rest        the part of the limit that the members with large demands divide
---   weights     the sum of the weights of these members, or 0 if all demands fit into the limit
---   demand      the cost of all calls of the member in the window, admitted or refused
---   used        the cost that the member was charged in the window
---
--- p2 is the window plus POOL_WEIGHT times the weight. p3 and p4 are the id of the member. p1 is
--- the limit, which is raised by POOL_RAISE if the charge is counted beyond the limit. In a charge
--- of a cost that no limit can refuse, p1 is -1 minus the limit.
---
--- `value` is the head. In a general script, the id of a member and the numbers of this member
--- can follow, because a settlement applies the rule to a state that it has not written. If
--- only the id follows, the state has no such member. `after` has the same form. In the script
--- of a single charge, `own_id` and `own_numbers` are the id and the numbers of the member of
--- the charge. In all other cases, the rule reads the member. The first call in a window reads
--- all members.
---
--- Further outputs are `member_id`, `own` (the numbers of this member, or '' to remove it) and, in
--- the first call in a window, `members` (the numbers of all members by their ids).
local limit, pool = p1, p1
if p1 < 0 then limit, pool = math.huge, -1 - p1 end
if pool > MAX_POOL then pool = pool - POOL_RAISE end
local window = p2 % POOL_WEIGHT
local weight = (p2 - window) / POOL_WEIGHT
--- @when pool
local member_id = own_id
--- @end
--- @when general
local member_id = pack('<I7I7', p3, p4)
--- @end
local ends, total, reserved, rest, weights, recovers_at = 0, 0, 0, 0, 0, 0
local is_valid, has_recovered, members, fields = true, false, nil, nil
if kind == POOL then
  ends, total, reserved, rest, weights = parse('<I7I7I7I7I7', value, 2)
  recovers_at = ends + window
  -- check
  is_valid = ends > 0 and ends < MAX_EXACT + window and ends % window == 0 and total <= MAX_EXACT
    and reserved <= MAX_EXACT and rest <= MAX_POOL and weights <= MAX_POOL_WEIGHTS
  has_recovered = now >= recovers_at
  if has_recovered then
    ends, total, reserved, rest, weights, recovers_at = 0, 0, 0, 0, 0, 0
  elseif now >= ends then
    --- @inline rules/fair_pool.next_window
  else
    keeps_ttl = true
  end
end
-- find: if the state is full, all further subjects are one member. A state without members, such as
-- in the window after the last call, has no end.
local own, is_other = '', false
while ends > 0 do
  if members then
    own = members[member_id] or ''
  --- @when pool
  elseif not is_other then
    own = own_numbers
  --- @end
  --- @when general
  elseif value:sub(POOL_HEAD + 1, POOL_HEAD + 14) == member_id then
    own = value:sub(POOL_HEAD + 15)
  --- @end
  else
    own = call('HMGET', key, member_id)[1] or ''
  end
  if own ~= '' or is_other or (fields or call('HLEN', key)) < POOL_FULL then break end
  member_id, is_other = POOL_OTHERS, true
end
local member_weight, demand, used, share = weight, 0, 0, 0
if #own == POOL_MEMBER then
  member_weight, demand, used, share = parse('<I2I7I7I7', own)
  is_valid = is_valid and demand <= MAX_EXACT and used <= demand and used <= total
    and share <= MAX_POOL and share - used <= reserved
elseif own ~= '' then
  is_valid = false
end

-- wait
local unused, most, remaining = share > used and share - used or 0, math.huge, nil
--- @inline rules/fair_pool.remaining
admits = cost <= remaining and total <= limit

local changes = false
if op == ACQUIRE and cost <= limit then -- take, refuse
  if p1 < 0 then cost = math.min(cost, MAX_EXACT - total) end
  changes = cost > 0
  if ends == 0 then ends = now - now % window + window end
  member_weight, demand = weight, math.min(demand + cost, MAX_EXACT)
  if admits then used, total = used + cost, total + cost end
elseif now < ends and (op == REFUND -- refund
  or op == UNDO and taken_at < ends and ends - taken_at <= window) then -- undo
  cost = math.min(cost, used)
  changes = cost > 0
  demand, used, total = demand - cost, used - cost, total - cost
elseif op == REFUND and has_recovered then
  after = false
end
if changes then
  reserved, own = reserved - unused, ''
  unused = share > used and share - used or 0
  reserved, recovers_at = reserved + unused, ends + window
  if demand > 0 or share > 0 then
    own = pack('<I2I7I7I7', member_weight, demand, used, share)
  elseif weights == 0 and call('HLEN', key) == 2 then
    after, ends, recovers_at = false, 0, 0 -- The state had only this member.
  end
  if after == nil then
    after = pack('<BI7I7I7I7I7', POOL, ends, total, reserved, rest, weights)
    --- @when general
    after = after .. member_id .. own
    --- @end
  end
  expires_at = recovers_at
  --- @inline rules/fair_pool.remaining
end
a, b, c, d = ends, used, remaining, recovers_at
if not is_valid then admits, after = nil, nil end

--- @section remaining
--- Computes the maximum cost that the member is admitted in this window.
---
--- Inputs: limit, pool, weight, total, reserved, rest, weights, used and unused (the unused part of
--- the member's share). Outputs: remaining and most (the maximum that the member is charged).
if weights > 0 and limit <= pool then
  local product = weight * rest
  most = (product - product % weights) / weights + 1
end
do
  -- `within` is what the member gets of its own share. `beyond` is what it gets if the unused
  -- shares of all others stay reserved. Comparisons are faster than `math.min` and `math.max`.
  local free = limit > total and limit - total or 0
  local beyond, within = free - (reserved - unused), unused
  if beyond > most - used then beyond = most - used end
  if within > free then within = free end
  remaining = beyond > within and beyond or within
end

--- @section next_window
--- Computes the shares of the next window from the demands in this window.
---
--- Inputs: key, ends, window and pool. Outputs: members, fields (the number of fields of the
--- state), ends (0 if no member has a demand), total, reserved, rest, weights and is_valid.
local by_demand, sum, all = {}, 0, call('HGETALL', key)
for place = 1, #all, 2 do
  local name, numbers = all[place], all[place + 1]
  if #name == 14 and #numbers == POOL_MEMBER then
    local own_weight, own_demand = parse('<I2I7', numbers)
    if own_weight == 0 or own_weight > MAX_WEIGHT then is_valid = false end
    if own_demand > 0 then
      by_demand[#by_demand + 1] = { name, own_weight, math.min(own_demand, pool + 1) }
      sum = sum + own_weight
    end
  elseif name ~= '' then
    is_valid = false
  end
end
table.sort(by_demand, function(x, y) return x[3] * y[2] < y[3] * x[2] end)
rest, weights, total, reserved = pool, sum, 0, 0
for _, member in ipairs(by_demand) do
  if member[3] * weights > member[2] * rest then break end
  rest, weights = rest - member[3], weights - member[2]
end
if weights == 0 then rest = 0 end
members, fields = {}, #by_demand + 1
for _, member in ipairs(by_demand) do
  local own_share, product = member[3], member[2] * rest
  if weights > 0 then own_share = math.min(own_share, (product - product % weights) / weights) end
  reserved = reserved + own_share
  members[member[1]] = pack('<I2I7I7I7', member[2], 0, 0, own_share)
end
ends = fields > 1 and ends + window or 0
