-- SPDX-License-Identifier: Apache-2.0
-- Gives slots to those who are next, the run among them or behind them in the queue. Idempotent by uid: a run that is in stays in,
-- whatever the limits.
--
-- ARGV[1] floor   ARGV[2] token of the lock, or '' for strategy Atomic  ARGV[3] version of the limits that the caller knows
-- ARGV[4] tenant  ARGV[5] uid  ARGV[6] name  ARGV[7] '<priority> <created> <name> <uid>'
--
-- Returns {'ok', term, used, waiting, reserved of the tenant, 1 if admitted, position from 1 or 0, member just ahead or '', slots of
-- all tenants, total, {uid, name, ... of others who got slots}, reserved of all tenants}, {'lost'} when the lock is not the token's,
-- {'limits'} when it must be told newer ones, or {'closed', why}.
local tenant, uid, name, member = ARGV[4], ARGV[5], ARGV[6], ARGV[4] .. ' ' .. ARGV[7]

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
local given = {}
if redis.call('HEXISTS', slots, 's' .. uid) == 0 then
  -- A reservation was given when there was room for it, so it does not stand in the queue; but limits may have been lowered since.
  if unreserve(uid) == 1 and used() + kept() < total() and inuse(tenant) < share(tenant) then
    take(uid, tenant, name, at)
  else
    if redis.call('HGET', places, 'p' .. uid) ~= member then
      redis.call('ZADD', queue, 0, member)
      leave(uid) -- the priority was changed; the tenant waits meanwhile, so it keeps its turn
      redis.call('HSET', places, 'p' .. uid, member)
      rank(tenant)
    end
    given = fill(at)
  end
else
  take(uid, tenant, name, at)
end
touch()
local answer, others = head(term, tenant), {}
for i = 1, #given, 2 do
  if given[i] ~= uid then
    others[#others + 1] = given[i]
    others[#others + 1] = given[i + 1]
  end
end
local position, ahead = 0, ''
local admitted = redis.call('HEXISTS', slots, 's' .. uid)
if admitted == 0 then
  position = redis.call('ZLEXCOUNT', queue, '[' .. tenant .. ' ', '[' .. member)
  if position > 1 then
    ahead = redis.call('ZREVRANGEBYLEX', queue, '(' .. member, '[' .. tenant .. ' ', 'LIMIT', 0, 1)[1]
    ahead = string.sub(ahead, #tenant + 2)
  end
end
answer[6], answer[7], answer[8], answer[9], answer[10], answer[11] = admitted, position, ahead, used() + kept(), total(), others
answer[12] = kept()
return answer
