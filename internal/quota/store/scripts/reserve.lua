-- SPDX-License-Identifier: Apache-2.0
-- Reserves a slot for a run that does not exist yet: never a place in the queue. Idempotent by uid; asking again moves the end on.
--
-- ARGV[1] floor  ARGV[2] token of the lock, or '' for strategy Atomic  ARGV[3] limit, below 0: none
-- ARGV[4] uid    ARGV[5] how long the reservation stands, ms; 0: only asks
--
-- Returns {'ok', term, used, waiting, reserved, 1 if there is room}, {'lost'} or {'closed', why}, as admit.lua.
local uid, max, ttl = ARGV[4], tonumber(ARGV[3]), tonumber(ARGV[5])

if ARGV[2] ~= '' and redis.call('GET', lock) ~= ARGV[2] then
  return {'lost'}
end
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local at = now()
heal(at)

local function answer(admitted)
  local a = head(term)
  a[6] = admitted
  return a
end

if redis.call('HEXISTS', slots, uid) == 1 then
  return answer(1)
end
local others = redis.call('ZCARD', reserved) - (redis.call('ZSCORE', reserved, uid) and 1 or 0)
local waiting = redis.call('ZCARD', queue) - redis.call('HEXISTS', places, uid)
if max >= 0 and used() + others + waiting >= max then
  if ttl > 0 then
    redis.call('ZREM', reserved, uid) -- of an earlier try, before the limit was lowered
  end
  return answer(0)
end
if ttl > 0 then
  redis.call('ZADD', reserved, endof(at, ttl), uid)
  redis.call('PEXPIRE', reserved, keep)
end
return answer(1)
