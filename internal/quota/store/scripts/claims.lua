-- SPDX-License-Identifier: Apache-2.0
-- All idempotency keys of a tenant.
--
-- KEYS[1] claims, as in claim.lua  ARGV[1] floor
--
-- Returns {'ok', term, {field, value, ...}, ms of now, ms of the last end that a reservation of now can have}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local at = now()
return {'ok', term, redis.call('HGETALL', data), at, at + longest}
