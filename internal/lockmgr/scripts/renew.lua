-- SPDX-License-Identifier: Apache-2.0
-- Starts the TTL of the run lock anew, if the token owns it.
--
-- KEYS[1] lock   ARGV[1] token   ARGV[2] TTL, ms
--
-- Returns 1, or 0 when the token is not the owner.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
