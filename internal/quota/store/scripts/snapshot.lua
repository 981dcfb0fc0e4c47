-- SPDX-License-Identifier: Apache-2.0
-- Everything there is of a key.
--
-- ARGV[1] floor
--
-- Returns {'ok', term, used, waiting, reserved, now in ms, {field, value, ...} of slots, {member, ...} of the queue,
-- {uid, end, ...} of reservations}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local at = now()
heal(at)
local answer = head(term)
answer[6] = string.format('%.0f', at)
answer[7] = redis.call('HGETALL', slots)
answer[8] = redis.call('ZRANGE', queue, 0, -1)
answer[9] = redis.call('ZRANGE', reserved, 0, -1, 'WITHSCORES')
return answer
