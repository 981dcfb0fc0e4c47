-- SPDX-License-Identifier: Apache-2.0
-- Takes the run lock, unless another token owns it or another process is first in the queue. Idempotent: a token that owns the lock
-- keeps it, with its fence.
--
-- KEYS[1] lock  KEYS[2] fence  KEYS[3] queue  KEYS[4] tickets
-- ARGV[1] token  ARGV[2] token that may be replaced, or ''  ARGV[3] TTL of the lock, ms
-- ARGV[4] floor: the fence is above it                       ARGV[5] TTL of the fence, ms
-- ARGV[6] process that waits in the queue if the lock is busy, or ''
-- ARGV[7] run UID                                            ARGV[8] how long an offer stands, ms
-- ARGV[9] how long a ticket stands, ms                       ARGV[10] most tickets of a run
--
-- Returns {fence (1 or more), processes in the queue}; or {0, 1 if process has a ticket, ms after which an offer to another ends}; or, where a
-- token owns the lock, {0, 1 if process has a ticket, 0, ms after which the lock ends (-1: it does not), token}.
local lock, queue, tickets = KEYS[1], KEYS[3], KEYS[4]
local token, process, uid, offerMillis = ARGV[1], ARGV[6], ARGV[7], ARGV[8]

-- Gives the process a ticket or moves its deadline on.
local function enqueue()
  if process == '' then
    return 0
  end
  if redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', tickets) -- tickets without a queue, which may have been evicted, would keep their owners out of it
  end
  if not redis.call('ZSCORE', tickets, process) then
    if redis.call('LLEN', queue) >= tonumber(ARGV[10]) then
      return 0
    end
    redis.call('RPUSH', queue, process)
  end
  local at = now()
  redis.call('ZADD', tickets, at + ARGV[9], process)
  redis.call('PEXPIREAT', queue, at + 60000)
  redis.call('PEXPIREAT', tickets, at + 60000)
  return 1
end

local owner = redis.call('GET', lock)
if owner and ARGV[2] ~= '' and owner == ARGV[2] then
  owner = false
end
if owner and owner ~= token and (process == '' or owner ~= '~' .. process) then
  if string.sub(owner, 1, 1) == '~' then
    return {0, enqueue(), redis.call('PTTL', lock)}
  end
  local holder = string.match(owner, '^([^.]+)%.')
  if holder then
    tell(holder, 'wanted ' .. uid)
  end
  return {0, enqueue(), 0, redis.call('PTTL', lock), owner}
end
if not owner then
  local head = first(queue, tickets)
  if head and head ~= process then
    offer(lock, tickets, head, offerMillis, uid)
    return {0, enqueue(), tonumber(offerMillis)}
  end
end
if process ~= '' then
  leave(queue, tickets, process)
end

local floor = tonumber(ARGV[4])
if floor >= 9007199254740991 then
  return redis.error_reply('ERR no fence is left above ' .. ARGV[4])
end
local fence = 0
if owner == token then
  fence = tonumber(redis.call('GET', KEYS[2]) or '0')
end
if fence <= floor then
  fence = redis.call('INCR', KEYS[2])
  if fence <= floor then
    fence = floor + 1
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
  end
end

redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('SET', lock, token, 'PX', ARGV[3])
return {fence, redis.call('LLEN', queue)}
