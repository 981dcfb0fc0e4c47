-- SPDX-License-Identifier: Apache-2.0
-- Reserves a slot for a run that does not exist yet: never a place in the queue. Idempotent by uid; asking again moves the end on.
-- What others are guaranteed is not lent here: nobody waits to whom it could come back.
--
-- ARGV[1] to ARGV[5] as pool_admit.lua  ARGV[6] how long the reservation stands, ms; 0: only asks
--
-- Returns {'ok', term, used, waiting, reserved of the tenant, 1 if there is room, 0, '', slots of all tenants, total, {}}, {'lost'},
-- {'limits'} or {'closed', why}, as pool_admit.lua.
local tenant, uid, ttl = ARGV[4], ARGV[5], tonumber(ARGV[6])

if ARGV[2] ~= '' and redis.call('GET', lock) ~= ARGV[2] then
  return {'lost'}
end
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
if behind(ARGV[3]) then
  return {'limits'}
end
local at = now()
heal(at)

local function answer(admitted)
  local a = head(term, tenant)
  a[6], a[7], a[8], a[9], a[10], a[11] = admitted, 0, '', used() + kept(), total(), {}
  return a
end

if redis.call('HEXISTS', slots, 's' .. uid) == 1 then
  return answer(1)
end
local max, guaranteed = share(tenant)
local mine = redis.call('HEXISTS', slots, 'r' .. uid)
local n, all = inuse(tenant) - mine, used() + kept() - mine
local line = waiting(tenant) - redis.call('HEXISTS', places, 'p' .. uid)
local room = n + line < max and all < total() and not nextup()
if room and n >= guaranteed then
  room = total() - all > number(limits, ':short')
end
if not room then
  if ttl > 0 then
    unreserve(uid) -- of an earlier try, before the limit was lowered
  end
  return answer(0)
end
if ttl > 0 then
  redis.call('ZADD', reserved, endof(at, ttl), uid)
  if mine == 0 then
    redis.call('HSET', slots, 'r' .. uid, tenant)
    count('v', tenant, 1)
  end
  touch()
end
return answer(1)
