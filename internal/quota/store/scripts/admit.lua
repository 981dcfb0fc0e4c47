-- SPDX-License-Identifier: Apache-2.0
-- Gives the run a slot, or a place in the queue. Idempotent by uid: a run that is in stays in, whatever the limit.
--
-- ARGV[1] floor  ARGV[2] token of the lock, or '' for strategy Atomic  ARGV[3] limit, below 0: none
-- ARGV[4] uid    ARGV[5] member of the queue
--
-- Returns {'ok', term, used, waiting, reserved, 1 if admitted, position from 1 or 0, member just ahead or ''}, {'lost'} when
-- the lock is not the token's, or {'closed', why}.
local uid, member, max = ARGV[4], ARGV[5], tonumber(ARGV[3])

if ARGV[2] ~= '' and redis.call('GET', lock) ~= ARGV[2] then
  return {'lost'}
end
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local at = now()
heal(at)

local function answer(admitted, position, ahead)
  local a = head(term)
  a[6], a[7], a[8] = admitted, position, ahead
  return a
end

local function enter()
  take(uid, at)
  tidy()
  return answer(1, 0, '')
end

if redis.call('HEXISTS', slots, uid) == 1 then
  return enter()
end
-- A reservation was given when there was room for it, so it does not stand in the queue; but a limit may have been lowered since.
if redis.call('ZREM', reserved, uid) == 1 and (max < 0 or used() < max) then
  return enter()
end
local place = redis.call('HGET', places, uid)
if place ~= member then
  leave(uid) -- the priority was changed
end
local rank = redis.call('ZLEXCOUNT', queue, '-', '(' .. member)
local free = room(max)
if not free or rank < free then
  return enter()
end
if place ~= member then
  redis.call('ZADD', queue, 0, member)
  redis.call('HSET', places, uid, member)
  redis.call('PEXPIRE', queue, keep)
  redis.call('PEXPIRE', places, keep)
end
return answer(0, rank + 1, rank > 0 and redis.call('ZRANGE', queue, rank - 1, rank - 1)[1] or '')
