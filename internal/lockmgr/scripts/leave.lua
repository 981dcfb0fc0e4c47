-- SPDX-License-Identifier: Apache-2.0
-- Gives up the place of a process in the queue. A lock that is kept for it is kept for the next, or freed.
--
-- KEYS[1] lock  KEYS[2] queue  KEYS[3] tickets
-- ARGV[1] process  ARGV[2] run UID  ARGV[3] how long an offer stands, ms
--
-- Returns 1 where a lock was kept for it, else 0.
leave(KEYS[2], KEYS[3], ARGV[1])
if redis.call('GET', KEYS[1]) ~= '~' .. ARGV[1] then
  return 0
end
return pass(KEYS[1], KEYS[2], KEYS[3], ARGV[3], ARGV[2])
