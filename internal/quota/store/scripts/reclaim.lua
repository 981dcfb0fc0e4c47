-- SPDX-License-Identifier: Apache-2.0
-- Ends a rebuild of idempotency keys. Claims that were given since somebody else ended it stand.
--
-- KEYS[1] claims, as in claim.lua  ARGV[1] floor  ARGV[2] token of the rebuild
-- ARGV[3] 'more': the rebuild goes on after this  ARGV[4...] field, value, ...
--
-- Returns {'ok', term}, or {'lost'} when the rebuild is not known.
local verb, term = 'HSETNX', open(ARGV[1])
if not term then
  verb, term = 'HSET', reopen(ARGV[2], ARGV[1], ARGV[3]) -- what the closed data says of these keys may be old
  if not term then
    return {'lost'}
  end
end
for i = 4, #ARGV, 2 do
  redis.call(verb, data, ARGV[i], ARGV[i + 1])
end
tidy()
return {'ok', term}
