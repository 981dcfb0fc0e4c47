-- SPDX-License-Identifier: Apache-2.0
-- Ends data that is open and holds nothing: it is as if it was never used then. Nobody has a grant of it, since a grant is in it.
--
-- KEYS[1] slots, as in queue.lua, or claims, as in claim.lua  KEYS[2...] what else the key may have  ARGV[1] floor
--
-- Returns {'ok', term, 1 if it ended}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
if redis.call('HLEN', data) > 1 or (#KEYS > 1 and redis.call('EXISTS', unpack(KEYS, 2)) > 0) then
  return {'ok', term, 0}
end
redis.call('DEL', data)
return {'ok', term, 1}
