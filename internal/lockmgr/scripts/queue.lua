-- SPDX-License-Identifier: Apache-2.0
-- What acquire, release and leave share: the queue of processes that wait for a run lock. Each has one ticket per run.
--
-- The queue is a list, first come first served. Each ticket has a deadline, which its process moves on by asking again; a
-- ticket whose deadline is over belongs to a process that is gone, or that was offered the lock and did not take it.
-- A lock that is kept for the first in the queue has the value '~' .. process.

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function leave(queue, tickets, process)
  redis.call('LREM', queue, 1, process)
  redis.call('ZREM', tickets, process)
end

-- Drops all tickets whose deadline is over, so that no number of dead waiters stalls the queue. Returns the first process that
-- is left; false: nobody waits.
local function first(queue, tickets)
  if redis.call('EXISTS', queue) == 0 then
    return false
  end
  for _, process in ipairs(redis.call('ZRANGEBYSCORE', tickets, '-inf', now())) do
    leave(queue, tickets, process)
  end
  return redis.call('LINDEX', queue, 0)
end

-- Without the right to publish whoever waits finds out by asking.
local function tell(process, news)
  redis.pcall('PUBLISH', 'syncopate:locks:' .. process, news)
end

-- Keeps the lock for a process for a while, and lets it know.
local function offer(lock, tickets, process, millis, uid)
  redis.call('SET', lock, '~' .. process, 'PX', millis)
  redis.call('ZADD', tickets, now() + millis, process)
  tell(process, 'offered ' .. uid)
end

-- Ends who has the lock, or for whom it is kept: it is kept for the first in the queue, or free.
local function pass(lock, queue, tickets, millis, uid)
  local head = first(queue, tickets)
  if not head then
    return redis.call('DEL', lock)
  end
  offer(lock, tickets, head, millis, uid)
  return 1
end
