-- SPDX-License-Identifier: Apache-2.0
-- What the scripts of pools share. A pool has the slots of all tenants of a policy that bounds them together.
--
-- KEYS[1] slots: a hash with the epoch, and
--           's' .. uid -> '<when it was taken, ms> <tenant> <name>'     'r' .. uid -> tenant of a reservation
--           'u' .. tenant -> its slots, ':u' -> all slots               'v' .. tenant -> its reservations, ':v' -> all of them
-- KEYS[2] queue: a sorted set with scores of 0, so in order of bytes: '<tenant> <priority> <created> <name> <uid>'
-- KEYS[3] places: a hash, 'p' .. uid -> member of the queue, 't' .. tenant -> member of turn, 'n' -> slots given while somebody waited
-- KEYS[4] reserved: a sorted set, uid by when the reservation ends, ms
-- KEYS[5] the lock of strategy Lock
-- KEYS[6] limits: a hash of the newest that was told, ':version', ':total', ':max', and tenant -> '<max> <guaranteed> <weight>';
--           ':short' is how many slots are guaranteed and not in use
-- KEYS[7] turn: a sorted set, 't<stamp>.<priority> <created> <name> <uid> <tenant>' of the first that waits of each tenant, by its turn
--
-- A slot is given to who waits, and not only offered: so each call looks at the first of turn only, however many tenants there are.
local slots, queue, places, reserved, lock, limits, turn = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local most = 256 -- slots that one call gives; the next calls give the others
local first = 1073741824 -- taken from the turn of who has less than it is guaranteed: more than any use / weight
local never = 1099511627776 -- the turn of who has as much as it may have

local function number(key, field)
  return tonumber(redis.call('HGET', key, field) or '0')
end

local function used()
  return number(slots, ':u')
end

local function kept()
  return number(slots, ':v')
end

local function total()
  return number(limits, ':total')
end

local function told()
  return redis.call('HEXISTS', limits, ':version') == 1
end

-- What a tenant may have, is guaranteed, and weighs.
local function share(tenant)
  local max, guaranteed, weight = string.match(redis.call('HGET', limits, tenant) or '', '^(%S+) (%S+) (%S+)$')
  max, guaranteed, weight = tonumber(max or redis.call('HGET', limits, ':max')), tonumber(guaranteed or '0'), tonumber(weight or '1')
  if max < 0 then
    max = total()
  end
  return max, math.min(max, guaranteed), weight
end

local function inuse(tenant)
  return number(slots, 'u' .. tenant) + number(slots, 'v' .. tenant)
end

local function waiting(tenant)
  return redis.call('ZLEXCOUNT', queue, '[' .. tenant .. ' ', '(' .. tenant .. '!')
end

-- Orders tenants with the same use / weight: who got a slot, or began to wait, longest ago is first. A tenant that has nothing and
-- begins to wait is before the one that got the last slot, and behind all others: so new tenants never keep one from its turn for good.
local function stamp(tenant)
  return string.format('%016.0f', 2 * number(places, 'n') + math.min(1, inuse(tenant)))
end

-- Puts a tenant where its turn is now; anew: it has just got a slot.
-- During a rolling update an older replica writes members without a stamp. They begin with a digit, so among equals they are
-- before those with one, until they are written anew. It reads a stamp as a part of the priority, and the words behind it as ever. So both
-- find who is next, and tenants take turns once the last older replica is gone. After a way back those with one stay behind (ADR 48).
local function rank(tenant, anew)
  local old = redis.call('HGET', places, 't' .. tenant)
  local head = redis.call('ZRANGEBYLEX', queue, '[' .. tenant .. ' ', '(' .. tenant .. '!', 'LIMIT', 0, 1)[1]
  if old then
    redis.call('ZREM', turn, old)
  end
  if not head then
    redis.call('HDEL', places, 't' .. tenant)
    return
  end
  local score, n = never, inuse(tenant)
  if told() then
    local max, guaranteed, weight = share(tenant)
    if n < max then
      score = n / weight - (n < guaranteed and first or 0)
    end
  end
  local since = not anew and old and string.match(old, '^t(%d+)%.') or stamp(tenant)
  local member = 't' .. since .. '.' .. string.sub(head, #tenant + 2) .. ' ' .. tenant
  redis.call('ZADD', turn, string.format('%.17g', score), member)
  redis.call('HSET', places, 't' .. tenant, member)
end

local function add(key, field, by)
  if by ~= 0 and redis.call('HINCRBY', key, field, by) == 0 then
    redis.call('HDEL', key, field)
  end
end

-- kind is 'u' for a slot, 'v' for a reservation.
local function count(kind, tenant, by)
  local n = inuse(tenant)
  add(slots, kind .. tenant, by)
  add(slots, ':' .. kind, by)
  if told() then
    local _, guaranteed = share(tenant)
    add(limits, ':short', math.max(0, guaranteed - n - by) - math.max(0, guaranteed - n))
  end
  rank(tenant, kind == 'u' and by > 0)
end

-- Returns how many places uid had: 0 or 1.
local function leave(uid)
  local member = redis.call('HGET', places, 'p' .. uid)
  if not member then
    return 0
  end
  redis.call('ZREM', queue, member)
  redis.call('HDEL', places, 'p' .. uid)
  rank(string.match(member, '^%S+'))
  return 1
end

-- Returns how many reservations uid had: 0 or 1.
local function unreserve(uid)
  local tenant = redis.call('HGET', slots, 'r' .. uid)
  redis.call('ZREM', reserved, uid)
  if not tenant then
    return 0
  end
  redis.call('HDEL', slots, 'r' .. uid)
  count('v', tenant, -1)
  return 1
end

-- Drops what is over. One of the keys without the others is what an eviction left: whoever waits asks again.
local function heal(at)
  local there = redis.call('EXISTS', queue, places, turn)
  if there == 1 or there == 2 then
    redis.call('DEL', queue, places, turn)
  end
  for _, range in ipairs({{'-inf', at}, {'(' .. endof(at, longest), '+inf'}}) do -- as lapsed() says
    for _, uid in ipairs(redis.call('ZRANGEBYSCORE', reserved, range[1], range[2])) do
      unreserve(uid)
    end
  end
  if redis.call('ZCARD', reserved) ~= kept() then
    for _, field in ipairs(redis.call('HKEYS', slots)) do
      if string.sub(field, 1, 1) == 'r' then
        unreserve(string.sub(field, 2))
      end
    end
    redis.call('DEL', reserved)
  end
end

-- A slot for uid, which may have one already. Returns 1 if it had none.
local function take(uid, tenant, name, at)
  leave(uid)
  unreserve(uid)
  if redis.call('HSETNX', slots, 's' .. uid, string.format('%.0f', at) .. ' ' .. tenant .. ' ' .. name) == 0 then
    return 0
  end
  if redis.call('EXISTS', queue) == 1 then -- else nobody has a turn, and the count may begin anew
    redis.call('HINCRBY', places, 'n', 1)
  end
  count('u', tenant, 1)
  return 1
end

-- Returns how many slots uid had: 0 or 1.
local function quit(uid)
  local tenant = string.match(redis.call('HGET', slots, 's' .. uid) or '', '^%S+ (%S+)')
  if not tenant then
    return 0
  end
  redis.call('HDEL', slots, 's' .. uid)
  count('u', tenant, -1)
  return 1
end

-- Who is next, while there is room: tenant, name and uid; nil: nobody may begin.
local function nextup()
  if used() + kept() >= total() then
    return nil
  end
  local head = redis.call('ZRANGE', turn, 0, 0, 'WITHSCORES')
  if #head == 0 or tonumber(head[2]) >= never then
    return nil
  end
  local name, uid, tenant = string.match(head[1], '^%S+ %S+ (%S+) (%S+) (%S+)$')
  return tenant, name, uid
end

-- Gives what is free to those who are next. Returns uid, name, uid, name...
local function fill(at)
  local given = {}
  for _ = 1, most do
    local tenant, name, uid = nextup()
    if not tenant then
      break
    end
    take(uid, tenant, name, at)
    given[#given + 1] = uid
    given[#given + 1] = name
  end
  return given
end

-- Whether what was told is older than what the caller knows.
local function behind(version)
  return tonumber(redis.call('HGET', limits, ':version') or '-1') < tonumber(version)
end

-- How an answer about a tenant begins; tenant '': about all of them.
local function head(term, tenant)
  if tenant == '' then
    return {'ok', term, used(), redis.call('ZCARD', queue), kept()}
  end
  return {'ok', term, number(slots, 'u' .. tenant), waiting(tenant), number(slots, 'v' .. tenant)}
end

local function touch()
  tidy()
  for _, key in ipairs({queue, places, reserved, limits, turn}) do
    redis.call('PEXPIRE', key, keep)
  end
end

-- Counts anew what is derived from slots: after data was lost, and when limits change.
local function recount()
  local counts, short = {}, 0
  for _, field in ipairs(redis.call('HKEYS', slots)) do
    if string.match(field, '^[uv]') or field == ':u' or field == ':v' then
      redis.call('HDEL', slots, field)
    end
  end
  local all = redis.call('HGETALL', slots)
  for i = 1, #all, 2 do
    local kind, tenant = string.sub(all[i], 1, 1), nil
    if kind == 's' then
      kind, tenant = 'u', string.match(all[i + 1], '^%S+ (%S+)')
    elseif kind == 'r' then
      kind, tenant = 'v', all[i + 1]
    end
    if tenant then
      redis.call('HINCRBY', slots, kind .. tenant, 1)
      redis.call('HINCRBY', slots, ':' .. kind, 1)
    end
  end
  if not told() then
    return
  end
  for _, tenant in ipairs(redis.call('HKEYS', limits)) do
    if string.sub(tenant, 1, 1) ~= ':' then
      local _, guaranteed = share(tenant)
      short = short + math.max(0, guaranteed - inuse(tenant))
    end
  end
  redis.call('HSET', limits, ':short', short)
  for _, field in ipairs(redis.call('HKEYS', places)) do
    if string.sub(field, 1, 1) == 't' then
      rank(string.sub(field, 2))
    end
  end
end
