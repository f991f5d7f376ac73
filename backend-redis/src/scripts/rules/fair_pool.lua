--- Fair pool: all members together are charged at most limit per window. Each member has a share,
--- which no other member can use. core/src/algorithm/fair_pool.rs decides in the same way, and
--- describes the shares. lib/rules.lua describes the inputs and outputs.
---
---   |  1   |  7   |   7   |    7     |  7   |    7    |   37   |   37   |
---   +------+------+-------+----------+------+---------+--------+--------+-- …
---   | POOL | ends | total | reserved | rest | weights | member | member |
---   +------+------+-------+----------+------+---------+--------+--------+-- …
---   |---------------- POOL_HEAD: 36 ------------------|
---
---   | member | id 14 | weight 2 | demand 7 | used 7 | share 7 |
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
--- A script finds a member by a search for its id in the value, and changes only the head and the
--- numbers of this member. The first call in a window reads all members.
---
--- A further output is `overwritten`: the byte at which the member begins, if `after` is only the
--- head and the member, which overwrite parts of the value.
local limit, pool = p1, p1
if p1 < 0 then limit, pool = math.huge, -1 - p1 end
if pool > MAX_POOL then pool = pool - POOL_RAISE end
local window = p2 % POOL_WEIGHT
local weight, member_id = (p2 - window) / POOL_WEIGHT, pack('<I7I7', p3, p4)
local ends, total, reserved, rest, weights, recovers_at = 0, 0, 0, 0, 0, 0
local member_weight, demand, used, share = weight, 0, 0, 0
local is_valid, has_recovered, overwritten = true, false, nil
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
-- find: `at` is the byte at which the member begins, or `nil` if the value has no such member. If
-- the value is full, all further subjects are one member.
local at, from, is_other = nil, POOL_HEAD + 1, false
while ends > 0 do
  at = value:find(member_id, from, true)
  if at and (at - POOL_HEAD) % POOL_MEMBER ~= 1 then
    from = at + 1
  elseif at or is_other or #value < POOL_FULL then
    break
  else
    member_id, from, is_other = POOL_OTHERS, POOL_HEAD + 1, true
  end
end
if at then
  member_weight, demand, used, share = parse('<I2I7I7I7', value, at + 14)
  is_valid = is_valid and demand <= MAX_EXACT and used <= demand and used <= total
    and share <= MAX_POOL and math.max(share - used, 0) <= reserved
end

-- wait
local unused, most, remaining = math.max(share - used, 0), math.huge, nil
--- @inline rules/fair_pool.remaining
admits = cost <= remaining and total <= limit

local changes = false
if op == ACQUIRE and cost <= limit then -- take, refuse
  if p1 < 0 then cost = math.min(cost, MAX_EXACT - total) end
  changes = cost > 0
  if ends == 0 then ends, value = now - now % window + window, nil end
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
  local unused_before, member = unused, ''
  unused = math.max(share - used, 0)
  reserved, recovers_at = reserved - unused_before + unused, ends + window
  if demand > 0 or share > 0 then
    member = member_id .. pack('<I2I7I7I7', member_weight, demand, used, share)
  end
  after = pack('<BI7I7I7I7I7', POOL, ends, total, reserved, rest, weights)
  --- @when pool
  -- The script of a single charge overwrites only the head and the member, if the key has them.
  if at and keeps_ttl and member ~= '' then
    overwritten = at
    after = after .. member
  end
  --- @end
  if not overwritten then
    local before, behind = value and value:sub(POOL_HEAD + 1, (at or 0) - 1) or '', ''
    if at then behind = value:sub(at + POOL_MEMBER) end
    after = after .. before .. member .. behind
    if #after == POOL_HEAD and weights == 0 then
      after, ends, recovers_at = false, 0, 0
    end
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
remaining = math.max(limit - total, 0)
remaining = math.max(math.min(remaining - (reserved - unused), most - used),
  math.min(remaining, unused))

--- @section next_window
--- Computes the shares of the next window from the demands in this window.
---
--- Inputs: value, ends, window and pool. Outputs: value (with the members of the next window, after
--- a head without a meaning), ends (0 if no member has a demand), total, reserved, rest, weights
--- and is_valid.
local members, by_demand, sum = {}, {}, 0
for place = POOL_HEAD + 1, #value, POOL_MEMBER do
  local own_weight, own_demand = parse('<I2I7', value, place + 14)
  if own_weight == 0 or own_weight > MAX_WEIGHT then is_valid = false end
  if own_demand > 0 then
    local member = { value:sub(place, place + 13), own_weight, math.min(own_demand, pool + 1) }
    members[#members + 1], by_demand[#by_demand + 1] = member, member
    sum = sum + own_weight
  end
end
table.sort(by_demand, function(x, y) return x[3] * y[2] < y[3] * x[2] end)
rest, weights, total, reserved = pool, sum, 0, 0
for _, member in ipairs(by_demand) do
  if member[3] * weights > member[2] * rest then break end
  rest, weights = rest - member[3], weights - member[2]
end
if weights == 0 then rest = 0 end
for place, member in ipairs(members) do
  local own_share, product = member[3], member[2] * rest
  if weights > 0 then own_share = math.min(own_share, (product - product % weights) / weights) end
  reserved = reserved + own_share
  members[place] = member[1] .. pack('<I2I7I7I7', member[2], 0, 0, own_share)
end
ends = members[1] and ends + window or 0
value = string.rep('\0', POOL_HEAD) .. table.concat(members)
