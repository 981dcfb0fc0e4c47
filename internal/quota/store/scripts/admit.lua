-- SPDX-License-Identifier: Apache-2.0
-- Gives the run a slot, or a place in the queue. Idempotent by uid: a run that is in stays in, whatever the limit.
--
-- ARGV[1] floor  ARGV[2] token of the lock, or '' for strategy Atomic  ARGV[3] limit, below 0: none
-- ARGV[4] uid    ARGV[5] member of the queue  ARGV[6] length of the window, as in free.lua
--
-- Returns {'ok', term, used, waiting, reserved, 1 if admitted, position from 1 or 0, member just ahead or '', {uid, name, ...} of who
-- comes into the window by this}, {'lost'} when the lock is not the token's, or {'closed', why}.
local uid, member, max, window = ARGV[4], ARGV[5], tonumber(ARGV[3]), tonumber(ARGV[6])

if ARGV[2] ~= '' and redis.call('GET', lock) ~= ARGV[2] then
  return {'lost'}
end
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local at = now()
heal(at)

-- Whether those behind it came a place nearer, while no slot was taken: one more of them may have come into the window. And whether it
-- was in already: the answer that let it in may be lost, with the name of who came into the window by that. Others may have come in
-- since, so that one is anywhere in the window.
local nearer, again = false, redis.call('HEXISTS', slots, uid) == 1

local function answer(admitted, position, ahead)
  local a, comes = head(term), {}
  local last = edge(max, window)
  if last >= 0 and (again or nearer or admitted == 1 and last == window - 1) then
    for _, m in ipairs(redis.call('ZRANGE', queue, again and 0 or last, last)) do
      name(comes, m)
    end
  end
  a[6], a[7], a[8], a[9] = admitted, position, ahead, comes
  return a
end

-- The slot that it takes and its place go together. So only where there are more slots than the window is long somebody comes into
-- it.
local function enter()
  take(uid, at)
  tidy()
  nearer = false
  return answer(1, 0, '')
end

if again then
  return enter()
end
-- A reservation was given when there was room for it, so it does not stand in the queue; but a limit may have been lowered since.
if redis.call('ZREM', reserved, uid) == 1 and (max < 0 or used() < max) then
  return enter()
end
local place = redis.call('HGET', places, uid)
if place ~= member then
  nearer = leave(uid) == 1 -- the priority was changed
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
