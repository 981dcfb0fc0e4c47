-- SPDX-License-Identifier: Apache-2.0
-- Claims an idempotency key: the first wins. Idempotent by run.
--
-- KEYS[1] claims: a hash, '=' .. key -> '<uid> <name> <hash of the spec>[ <end of a reservation, ms>]', and the epoch
-- ARGV[1] floor  ARGV[2] field  ARGV[3] uid, name and hash
-- ARGV[4] 0: the run exists; above 0: it is about to be created, and has so many ms for that; below 0: only asks
--
-- Returns {'ok', term, value of the owner or '', 1 if its run is about to be created and has time left}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local ttl, at = tonumber(ARGV[4]), now()
local owner = redis.call('HGET', data, ARGV[2])
local ours = owner and string.match(owner, '^%S+') == string.match(ARGV[3], '^%S+')
if ttl >= 0 and (not owner or (ours and string.match(owner, '^%S+ %S+ %S+ %d+$'))) then
  owner = ARGV[3]
  if ttl > 0 then
    owner = owner .. ' ' .. endof(at, ttl)
  end
  redis.call('HSET', data, ARGV[2], owner)
  tidy()
end
local stop = string.match(owner or '', '^%S+ %S+ %S+ (%d+)$')
return {'ok', term, owner or '', (stop and not lapsed(tonumber(stop), at)) and 1 or 0}
