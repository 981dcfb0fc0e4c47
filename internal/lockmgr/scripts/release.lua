-- SPDX-License-Identifier: Apache-2.0
-- Frees the run lock, if the token owns it, or keeps it for the first in the queue: a late release never frees a newer owner's lock.
--
-- KEYS[1] lock  KEYS[2] queue  KEYS[3] tickets
-- ARGV[1] token  ARGV[2] run UID  ARGV[3] how long an offer stands, ms
--
-- Returns 1, or 0 when the token is not the owner.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return pass(KEYS[1], KEYS[2], KEYS[3], ARGV[3], ARGV[2])
