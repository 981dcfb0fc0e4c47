-- SPDX-License-Identifier: Apache-2.0
-- Everything there is of locks. What has no meaning any more of what began is taken away.
--
-- ARGV[1] floor
--
-- Returns {'ok', term, {ticket, hold, ...}, {ticket, place, ...}} as in locks.lua, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
heal()
local all = {}
for _, field in ipairs(redis.call('HKEYS', holds)) do
  if string.sub(field, 1, 1) == 's' then
    local period = tonumber(string.match(redis.call('HGET', holds, field), '^%d+'))
    if #starts(string.sub(field, 2), period) == 0 then
      redis.call('HDEL', holds, field)
    end
  elseif string.sub(field, 1, 1) == 'h' then
    all[#all + 1] = string.sub(field, 2)
    all[#all + 1] = redis.call('HGET', holds, field)
  end
end
return {'ok', term, all, redis.call('HGETALL', places)}
