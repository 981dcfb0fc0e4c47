-- Claims an idempotency key: the first wins. Idempotent by value.
--
-- KEYS[1] claims: a hash, '=' .. key -> '<uid> <name> <hash of the spec>', and the epoch
-- ARGV[1] floor  ARGV[2] field  ARGV[3] value
--
-- Returns {'ok', term, value of the owner}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
if redis.call('HSETNX', data, ARGV[2], ARGV[3]) == 1 then
  tidy()
end
return {'ok', term, redis.call('HGET', data, ARGV[2])}
