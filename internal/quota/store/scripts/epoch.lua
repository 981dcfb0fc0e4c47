-- SPDX-License-Identifier: Apache-2.0
-- What all scripts share: whether the data may be trusted.
--
-- KEYS[1] is a hash. Its field ':epoch' is '<term> <run_id of the server>' while it is open; while it is being rebuilt it has
-- ':rebuild' instead, '<token> <run_id>', and ' <term>' where the new term has to be above one that is still to come. Data and epoch are
-- in one key, so that they are lost together, if at all.
--
-- longest is how long a reservation stands at most, of a slot or of an idempotency key, ms: see script.go.
local data = KEYS[1]
local keep = 604800000 -- how long what holds nothing of value is kept, ms: 7 days


local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- When a reservation of so many ms ends.
local function endof(at, ttl)
  return string.format('%.0f', at + math.min(ttl, longest))
end

-- Whether a reservation with this end is over. An end that is further away than any may be was given by a clock that was ahead: it would
-- stand until the clock is there.
local function lapsed(stop, at)
  return stop <= at or stop > at + longest
end

-- The run_id of this server: another one after each start. The embedded stand-in has none, and says so in these words; any
-- other error ends the script, since a server that cannot be told from another must not be trusted.
local function server()
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' then
    if string.find(info.err, 'section (server) is not supported', 1, true) then
      return 'stand-in'
    end
    info = redis.call('INFO', 'server')
  end
  local id = string.match(info, 'run_id:(%w+)')
  return id or error('INFO does not tell the run_id of this server')
end

-- The term, if the data is open; else nil and why not. floor is the highest term that the caller has seen: data of an older
-- one is what a server brought back that was out of use meanwhile.
local function open(floor)
  local epoch = redis.call('HGET', data, ':epoch')
  if not epoch then
    if redis.call('HEXISTS', data, ':rebuild') == 1 then
      return nil, 'rebuilding'
    end
    return nil, 'missing'
  end
  local term, id = string.match(epoch, '^(%d+) (.+)$')
  if id ~= server() then
    return nil, 'server'
  end
  if tonumber(term) < tonumber(floor) then
    return nil, 'older'
  end
  return term
end

-- The rebuild that is under way: its token, the server, and what its term has to be above. Without one the first two are nil.
local function begun()
  local token, id, least = string.match(redis.call('HGET', data, ':rebuild') or '', '^(%S+) (%S+) ?(%d*)$')
  return token, id, tonumber(least) or 0
end

-- Ends a rebuild and returns the new term; nil if there is no rebuild of that token, because the data was lost again. With 'more'
-- the data stays closed, since the caller has more to enter: then there is no term yet, '0'.
local function reopen(token, floor, more)
  local id = server()
  local of, at, least = begun()
  if of ~= token or at ~= id then
    return nil
  end
  if more == 'more' then
    return '0'
  end
  local term = string.format('%.0f', math.max(now(), floor + 1, least + 1))
  redis.call('HDEL', data, ':rebuild')
  redis.call('HSET', data, ':epoch', term .. ' ' .. id)
  return term
end

-- What holds nothing but its epoch ends some day; whoever comes later rebuilds it.
local function tidy()
  if redis.call('HLEN', data) > 1 then
    redis.call('PERSIST', data)
  else
    redis.call('PEXPIRE', data, keep)
  end
end
