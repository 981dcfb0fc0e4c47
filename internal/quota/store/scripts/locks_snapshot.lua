-- SPDX-License-Identifier: Apache-2.0
-- A portion of what there is of locks, since all of Redis waits for a script. Places are read before holds: who goes from the one to the
-- other meanwhile is in both, and never in neither. What is there all the time is in a portion, and may be in more than one. What has no
-- meaning any more of what began is taken away. All holders are entered again: Redis may have evicted them, and no
-- count of them is right where an older replica takes locks, too. One that is there is no write.
--
-- ARGV[1] floor  ARGV[2] where to go on: 'p0' first, then as the last answer says: 'p' or 'h', and the cursor in places, or in holds
--
-- Returns {'ok', term, {ticket, hold, ...}, {ticket, place, ...}, where to go on, or '', and '' or why all was read at once} as in
-- locks.lua, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
heal()

-- Whether all that began is over. The times are in order, so the last one says it, and the others need not be read; but where the last
-- is still to come, starts mends them.
local function over(name, text)
  local period, last = tonumber(string.match(text, '^%d+')), tonumber(string.match(string.sub(text, -20), '%d+$'))
  if last > present() then
    return #starts(name, period) == 0
  end
  return last <= present() - period
end

local at, cursor = string.match(ARGV[2], '^(%a)(%d+)$')
local held, waiting, all, once = {}, {}, nil, nil
if at == 'p' then
  cursor, waiting, once = scan(places, cursor)
  if cursor ~= '0' then
    return {'ok', term, held, waiting, 'p' .. cursor, ''}
  end
end
cursor, all, once = scan(holds, cursor)
for i = 1, #all, 2 do
  local kind, name, text = string.sub(all[i], 1, 1), string.sub(all[i], 2), all[i + 1]
  if kind == 'h' then
    held[#held + 1] = name
    held[#held + 1] = text
    local h = holdof(text)
    for _, l in ipairs(h.locks) do
      redis.call('ZADD', holders, 0, index(l.name, h, name))
    end
  elseif kind == 's' and over(name, text) then
    redis.call('HDEL', holds, all[i])
  end
end
return {'ok', term, held, waiting, cursor ~= '0' and 'h' .. cursor or '', once}
