-- SPDX-License-Identifier: Apache-2.0
-- Frees an idempotency key, if the run owns it.
--
-- KEYS[1] claims, as in claim.lua  ARGV[1] floor  ARGV[2] field  ARGV[3] uid
-- ARGV[4] 'lapsed': only while it is a reservation that has ended; '': in any case
--
-- Returns {'ok', term, keys freed}, or {'closed', why}; the key is free even then, but a rebuild may bring it back.
local freed = 0
local owner = redis.call('HGET', data, ARGV[2])
local ours = owner and string.match(owner, '^%S+') == ARGV[3]
if ours and ARGV[4] == 'lapsed' then
  local stop = string.match(owner, '^%S+ %S+ %S+ (%d+)$')
  ours = stop and lapsed(tonumber(stop), now())
end
if ours then
  freed = redis.call('HDEL', data, ARGV[2])
end
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
if freed > 0 then
  tidy()
end
return {'ok', term, freed}
