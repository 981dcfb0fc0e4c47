-- SPDX-License-Identifier: Apache-2.0
-- Frees the lock of strategy Lock, if the token owns it.
--
-- KEYS[1] lock  ARGV[1] token
--
-- Returns 1, or 0 when the token is not the owner.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
