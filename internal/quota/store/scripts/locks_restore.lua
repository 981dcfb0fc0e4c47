-- SPDX-License-Identifier: Apache-2.0
-- Enters holds that status has, whatever the limits. With a token it ends a rebuild. All of Redis waits for a script, so a rebuild is
-- many short calls; the last of them opens the data.
--
-- ARGV[1] floor  ARGV[2] token of the rebuild, or ''  ARGV[3] a fence that all later ones must exceed
-- ARGV[4] 'more': the rebuild goes on after this  ARGV[5...] of each: ticket, its hold as in locks.lua
--
-- Returns {'ok', term, holds added, 1}; {'ok', '0', 0, 0} if nothing is entered yet, since what the closed data holds has to be counted
-- first: the caller asks the same again; {'closed', why}, or {'lost'} when the rebuild is not known.
local token = ARGV[2]

-- Counts one that the closed data holds. A scan may tell of it twice: whoever is among the holders of a lock was counted.
local function recount(ticket, h)
  for _, l in ipairs(h.locks) do
    if redis.call('ZADD', holders, 0, index(l.name, h, ticket)) == 1 then
      count(l.name, l.permits)
    end
  end
end

-- What is done with a portion of the closed data, by the stage of the count. Returns the next stage, where to go on in it, and how much
-- it was.
local stages = {
  u = function(cursor) -- sums of before may be wrong
    local on, all = scan(holds, cursor)
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 1) == 'u' then
        redis.call('HDEL', holds, all[i])
      end
    end
    return on == '0' and 'i' or 'u', on, #all / 2
  end,
  i = function()
    local some = redis.call('ZRANGE', holders, 0, portion - 1)
    for _, member in ipairs(some) do
      redis.call('ZREM', holders, member)
    end
    return #some < portion and 'h' or 'i', '0', #some
  end,
  h = function(cursor) -- what is held stays until the resync: too much is safe
    local on, all = scan(holds, cursor)
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 1) == 'h' then
        local ticket = string.sub(all[i], 2)
        recount(ticket, holdof(all[i + 1]))
      end
    end
    return on == '0' and 'd' or 'h', on, #all / 2
  end,
}

-- Whether the closed data is counted; else it counts a portion of it. All who rebuild at the same time have the same token, and go on
-- where the last call of any of them ended: what one has counted another does not take away.
local function counted()
  local of, stage, cursor = string.match(redis.call('HGET', holds, ':recount') or '', '^(%S+) (%a) (%d+)$')
  if of ~= token then
    stage, cursor = 'u', '0'
  end
  local done = 0
  while stage ~= 'd' and done < portion do
    local some
    stage, cursor, some = stages[stage](cursor)
    done = done + some
  end
  redis.call('HSET', holds, ':recount', token .. ' ' .. stage .. ' ' .. cursor)
  return stage == 'd'
end

local term, why = open(ARGV[1])
if not term then
  if token == '' then
    return {'closed', why}
  end
  if not reopen(token, ARGV[1], 'more') then
    return {'lost'}
  end
  if not counted() then
    return {'ok', '0', 0, 0}
  end
  term = reopen(token, ARGV[1], ARGV[4])
  if ARGV[4] ~= 'more' then
    redis.call('HDEL', holds, ':recount')
    redis.call('HSET', holds, ':opened', string.format('%.0f', present()))
  end
end
redis.call('PERSIST', data)
if tonumber(redis.call('HGET', holds, ':fence') or '0') < tonumber(ARGV[3]) then
  redis.call('HSET', holds, ':fence', ARGV[3])
end
local added = 0
for i = 5, #ARGV, 2 do
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
return {'ok', term, added, 1}
