-- SPDX-License-Identifier: Apache-2.0
-- Gives an idempotency key another owner at once: between the two nobody else claims it. Somebody else's stays.
--
-- KEYS[1] claims, as in claim.lua  ARGV[1] floor  ARGV[2] field  ARGV[3] uid of the owner; '': none
-- ARGV[4] uid, name and hash of the next owner
--
-- Returns {'ok', term}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local owner = redis.call('HGET', data, ARGV[2])
if not owner or string.match(owner, '^%S+') == ARGV[3] then
  redis.call('HSET', data, ARGV[2], ARGV[4])
  tidy()
end
return {'ok', term}
