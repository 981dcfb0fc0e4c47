-- SPDX-License-Identifier: Apache-2.0
-- Enters holds that status has, whatever the limits. With a token it ends a rebuild.
--
-- ARGV[1] floor  ARGV[2] token of the rebuild, or ''  ARGV[3] a fence that all later ones must exceed
-- ARGV[4...] of each: ticket, its hold as in locks.lua
--
-- Returns {'ok', term, holds added}, {'closed', why}, or {'lost'} when the rebuild is not known.
local term, why = open(ARGV[1])
if not term then
  if ARGV[2] == '' then
    return {'closed', why}
  end
  term = reopen(ARGV[2], ARGV[1])
  if not term then
    return {'lost'}
  end
  redis.call('HSET', holds, ':opened', string.format('%.0f', present()))
  -- What the closed data still held stays until the resync: too much is safe. Its sums may be wrong.
  redis.call('DEL', holders)
  for _, field in ipairs(redis.call('HKEYS', holds)) do
    if string.sub(field, 1, 1) == 'u' then
      redis.call('HDEL', holds, field)
    end
  end
  for _, field in ipairs(redis.call('HKEYS', holds)) do
    if string.sub(field, 1, 1) == 'h' then
      local ticket = string.sub(field, 2)
      enter(ticket, hold(ticket))
    end
  end
end
redis.call('PERSIST', data)
if tonumber(redis.call('HGET', holds, ':fence') or '0') < tonumber(ARGV[3]) then
  redis.call('HSET', holds, ':fence', ARGV[3])
end
local added = 0
for i = 4, #ARGV, 2 do
  local ticket = ARGV[i]
  local had = hold(ticket)
  if had then
    quit(ticket, had)
  else
    added = added + 1
  end
  redis.call('HSET', holds, 'h' .. ticket, ARGV[i + 1])
  enter(ticket, hold(ticket))
  leave(ticket)
end
return {'ok', term, added}
