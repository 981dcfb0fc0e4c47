-- SPDX-License-Identifier: Apache-2.0
-- Takes from runs whatever they have: slot, place, reservation. Says who is next: the first in the queue that can be admitted now, as
-- many as the window is long. Each of them that is admitted names one more: see admit.lua.
--
-- ARGV[1] floor  ARGV[2] limit, below 0: none  ARGV[3] length of the window  ARGV[4...] uids; behind '~' one that loses its place only
--
-- Returns {'ok', term, used, waiting, reserved, slots freed, places freed, uid, name, ... of who is next}, or
-- {'closed', why}; what the runs had is gone even then, but the rebuild that is due may bring it back, so the caller repeats it afterwards.
local max, window, slotsFreed, placesFreed = tonumber(ARGV[2]), tonumber(ARGV[3]), 0, 0

heal(now())
for i = 4, #ARGV do
  local waits = string.match(ARGV[i], '^~(.*)$')
  placesFreed = placesFreed + leave(waits or ARGV[i])
  if not waits then
    slotsFreed = slotsFreed + redis.call('HDEL', slots, ARGV[i])
    redis.call('ZREM', reserved, ARGV[i])
  end
end
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
if slotsFreed > 0 then
  tidy()
end
local answer = head(term)
answer[6], answer[7] = slotsFreed, placesFreed
local last = edge(max, window)
if last < 0 then
  return answer
end
for _, member in ipairs(redis.call('ZRANGE', queue, 0, last)) do
  name(answer, member)
end
return answer
