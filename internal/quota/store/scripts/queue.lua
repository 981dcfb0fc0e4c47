-- SPDX-License-Identifier: Apache-2.0
-- What the scripts of slots share.
--
-- KEYS[1] slots: a hash, uid -> when it was taken, ms, and the epoch
-- KEYS[2] queue: a sorted set of members with score 0, so in order of their bytes: '<priority> <created> <name> <uid>'
-- KEYS[3] places: a hash, uid -> member of the queue
-- KEYS[4] reserved: a sorted set, uid by when the reservation ends, ms
-- KEYS[5] the lock of strategy Lock
local slots, queue, places, reserved, lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- Only for slots that are open: the epoch is a field too.
local function used()
  return redis.call('HLEN', slots) - 1
end

-- Drops what is over. A queue without its places, or the other way round, is what an eviction left: whoever waits asks again.
local function heal(at)
  if redis.call('EXISTS', queue, places) == 1 then
    redis.call('DEL', queue, places)
  end
  redis.call('ZREMRANGEBYSCORE', reserved, '-inf', at)
  redis.call('ZREMRANGEBYSCORE', reserved, '(' .. endof(at, longest), '+inf') -- as lapsed() says
end

-- Returns how many places uid had: 0 or 1.
local function leave(uid)
  local member = redis.call('HGET', places, uid)
  if not member then
    return 0
  end
  redis.call('ZREM', queue, member)
  return redis.call('HDEL', places, uid)
end

-- How many more slots there are, reservations taken off; nil without a limit.
local function room(max)
  if max >= 0 then
    return max - used() - redis.call('ZCARD', reserved)
  end
end

-- The rank of the last in the queue that is awake by its turn: of those who can be admitted now only so many are, as the window is
-- long. Below 0: nobody can.
local function edge(max, window)
  return math.min(room(max) or window, window) - 1
end

-- Names the run of a member of the queue in a list: uid, name, uid, name...
local function name(list, member)
  local of, uid = string.match(member, '^.* ([^ ]+) ([^ ]+)$')
  list[#list + 1], list[#list + 2] = uid, of
end

-- How every answer begins.
local function head(term)
  return {'ok', term, used(), redis.call('ZCARD', queue), redis.call('ZCARD', reserved)}
end

-- A slot for uid, which may have one already. Returns 1 if it had none.
local function take(uid, at)
  leave(uid)
  redis.call('ZREM', reserved, uid)
  return redis.call('HSETNX', slots, uid, string.format('%.0f', at))
end
