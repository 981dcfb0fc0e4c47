-- SPDX-License-Identifier: Apache-2.0
-- Everything there is of a pool.
--
-- ARGV[1] floor
--
-- Returns {'ok', term, used, waiting, reserved, now in ms, {uid, '<ms> <tenant> <name>', ...} of slots, {member, ...} of the queue, {uid,
-- end, ...} of reservations}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local at = now()
heal(at)
local answer, all = head(term, ''), {}
local fields = redis.call('HGETALL', slots)
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 1) == 's' then
    all[#all + 1] = string.sub(fields[i], 2)
    all[#all + 1] = fields[i + 1]
  end
end
answer[6] = string.format('%.0f', at)
answer[7] = all
answer[8] = redis.call('ZRANGE', queue, 0, -1)
answer[9] = redis.call('ZRANGE', reserved, 0, -1, 'WITHSCORES')
return answer
