-- SPDX-License-Identifier: Apache-2.0
-- Takes all locks of a ticket, or none and a place in their queues, or neither. Idempotent by ticket. One that asks for other locks
-- than before gives up what it had, or waited for.
--
-- ARGV[1] floor  ARGV[2] ticket  ARGV[3] run  ARGV[4] tree  ARGV[5] version  ARGV[6] order
-- ARGV[7...] of each lock: permits, limit, '1' if ordered, else '0', and ':<rate>' if it has one, onBusy, longest queue, name
--
-- Returns {'ok', term, state, fence or '0', lock it waits for or '', used of it, place from 1, how many wait, run just ahead or '',
-- {runs that hold it}, {ticket, run, lock, ... to cancel}, {ticket, run, ... to wake}, ms until the rate lets it ask again or 0}; or
-- {'ok', term, 'other'} if other locks were granted that may still be written; or {'closed', why}. state is held, waiting, or why it is
-- refused.
local ticket, run, tree, version, order = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
heal()
local wants, current = {}, {}
local never = false -- it asks for more than there is, as a limit was lowered: it keeps its place, but is in no line, and ends nobody's wait or hold, until the limit fits
for i = 7, #ARGV, 6 do
  local w = {
    permits = tonumber(ARGV[i]), limit = tonumber(ARGV[i + 1]), ordered = string.sub(ARGV[i + 2], 1, 1) == '1', rate = rateof(ARGV[i + 2]),
    how = ARGV[i + 2], busy = ARGV[i + 3], longest = tonumber(ARGV[i + 4]), name = ARGV[i + 5],
  }
  wants[#wants + 1] = w
  current[w.name] = w
  never = never or w.permits > w.limit
end

local function answer(state, fence, lock, position, ahead)
  local of, waiting, cancel = {}, 0, {}
  local inuse = 0
  if lock then
    inuse = used(lock.name)
    waiting = redis.call('ZLEXCOUNT', queue, '[' .. lock.name .. ' ', '(' .. lock.name .. '!')
    for _, m in ipairs(redis.call('ZRANGEBYLEX', holders, '[' .. lock.name .. ' ', '(' .. lock.name .. '!', 'LIMIT', 0, 3)) do
      local h = hold(string.match(m, '^.* (%S+)$'))
      if h then
        of[#of + 1] = h.run
      end
    end
  end
  return {'ok', term, state, fence or '0', lock and lock.name or '', inuse, position or 0, waiting, ahead or '', of, cancel, {}, 0}
end

-- Whether these locks are those that are wanted, in any order.
local function same(locks)
  for _, l in ipairs(locks) do
    if not current[l.name] or current[l.name].permits ~= l.permits then
      return false
    end
  end
  return #locks == #wants
end

-- Locks whose lines may move, as a ticket took them, or left their lines. Each costs a look at those who wait for it.
local few = 16 -- of those that others leave: the resync looks at the rest
local touched, names = {}, {}
local function touch(locks)
  for _, l in ipairs(locks) do
    if not names[l.name] then
      names[l.name] = true
      touched[#touched + 1] = l
    end
  end
end

local held = hold(ticket)
if held and same(held.locks) then
  if held.version < version then
    held.version = version
    keephold(ticket, held)
  end
  return answer('held', held.fence)
end
if held then
  -- Who asks has read that this version does not have them. If it is newer, nobody can write them any more; else somebody may.
  if held.version >= version then
    return {'ok', term, 'other'}
  end
  quit(ticket, held)
  touch(held.locks)
end

local mine = place(ticket)
if mine and mine.refused then
  return answer(mine.refused)
end
if mine then
  order = string.sub(order, 1, 10) .. string.sub(mine.order, 11) -- its age is that of its first question, and so is when it came
  if not same(mine.wants) then
    leave(ticket)
    touch(mine.wants)
    mine = nil
  elseif order ~= mine.order or never then
    local _, left = leave(ticket)
    if left > 0 then
      touch(mine.wants)
    end
  end
end

local function finish(a)
  wake(a[12], touched)
  return a
end

local function before(name)
  return redis.call('ZLEXCOUNT', queue, '[' .. name .. ' ', '(' .. name .. ' ' .. order .. ' ' .. ticket)
end

-- What it waits for: a lock without room, one whose line it may not overtake, or others before it that can have theirs; and how long
-- the rate of the lock makes it wait, for the first in line.
local function blocked()
  local ok, lock, rest = fits(wants, {}, {})
  if rest then
    local _, late = runnable(line(wants, order, ticket), current)
    rest = not late[lock.name] and rest or nil
  end
  if not ok then
    return lock, rest
  end
  for _, w in ipairs(wants) do
    if w.ordered and before(w.name) > 0 then
      return w
    end
  end
  local short
  runnable(line(wants, order, ticket), current, function(promised)
    ok, short = fits(wants, promised, {})
    return not ok
  end)
  return short
end

local lock, rest = blocked()
if not lock then
  local last = tonumber(redis.call('HGET', holds, ':fence') or '0')
  local fence = string.format('%.0f', math.max(last + 1, present()))
  redis.call('HSET', holds, ':fence', fence)
  local h = {version = version, fence = fence, run = run, tree = tree, locks = {}}
  for _, w in ipairs(wants) do
    h.locks[#h.locks + 1] = {permits = w.permits, name = w.name}
    if w.rate then
      begin(w.name, w.rate)
    end
  end
  leave(ticket)
  enter(ticket, h)
  touch(wants)
  return finish(answer('held', fence))
end

-- Whether a lock is busy. What is reserved is held by nobody, as far as is known: who would find room beside the others waits.
local function busy(w)
  local ok, _, rest = fits({w}, {}, {})
  return not ok and (rest ~= nil or used(w.name) - reserved(w.name) + w.permits > w.limit)
end

-- Whose holds are to end so that it can begin, as ticket, run, lock... Nobody's where it could not begin even then: a lock has no room for it, or is
-- about to be taken by one before it, its rate rests, or somebody is before it in its line. Nor does a run end itself, or another of its tree: that may
-- be the one that it is below. Nor whoever has locks reserved: it may never have held them.
--
-- To look at those before it costs Redis most, as a read of each place: so that comes last, where all else has room. They are looked at with
-- what is freed: it is theirs first, and what is left then is for this one.
local function cancels()
  local uid, promised, chosen, list = string.match(ticket, '^[^/]+'), {}, {}, {} -- what is freed is promised as less than nothing
  local function over(w)
    return used(w.name) + (promised[w.name] or 0) + w.permits - w.limit
  end
  for _, w in ipairs(wants) do
    local some = w.busy == 'CancelOldest' and over(w) > 0 and redis.call('ZRANGEBYLEX', holders, '[' .. w.name .. ' ', '(' .. w.name .. '!') or {}
    for _, m in ipairs(some) do
      if over(w) <= 0 then
        break
      end
      local other = string.match(m, '^.* (%S+)$')
      local h = not chosen[other] and string.match(other, '^[^/]+') ~= uid and hold(other)
      if h and h.tree ~= tree and not isreserved(h) then
        chosen[other] = true
        list[#list + 1], list[#list + 2], list[#list + 3] = other, h.run, w.name
        for _, l in ipairs(h.locks) do
          promised[l.name] = (promised[l.name] or 0) - l.permits
        end
      end
    end
  end
  local function begins()
    for _, w in ipairs(wants) do
      local rests = w.rate and toosoon(w.name, w.rate, promised['#' .. w.name] or 0) > 0
      if over(w) > 0 or rests or w.ordered and before(w.name) > 0 then
        return false
      end
    end
    return true
  end
  if #list == 0 or not begins() then
    return {}
  end
  runnable(line(wants, order, ticket), current, nil, nil, promised)
  return begins() and list or {}
end

local superseded = {}
for _, w in ipairs(wants) do
  if w.busy == 'DropNewest' and busy(w) then
    leave(ticket)
    touch(mine and wants or {})
    return finish(answer('LockBusy', nil, w))
  end
  if w.busy == 'KeepLatest' or w.busy == 'CancelOldest' then
    for _, other in ipairs(never and {} or line({w})) do
      if other.ticket ~= ticket then
        if arrival(other.order) > arrival(order) then
          refuse(ticket, {order = order, run = run, tree = tree}, 'Superseded')
          touch(mine and wants or {})
          return finish(answer('Superseded', nil, w))
        end
        superseded[other.ticket] = true
      end
    end
  elseif not mine and redis.call('ZLEXCOUNT', queue, '[' .. w.name .. ' ', '(' .. w.name .. '!') >= w.longest then
    return finish(answer('LockQueueFull', nil, w))
  end
end
local woken = {}
for other in pairs(superseded) do
  local p = place(other)
  if #touched < few then
    touch(p.wants)
  end
  refuse(other, p, 'Superseded')
  woken[#woken + 1] = other
  woken[#woken + 1] = p.run
end

local text = order .. ' ' .. run .. ' ' .. tree .. ' -'
for _, w in ipairs(wants) do
  text = text .. ' ' .. w.permits .. ' ' .. w.limit .. ' ' .. w.how .. ' ' .. w.name
  if not never then
    redis.call('ZADD', queue, 0, w.name .. ' ' .. order .. ' ' .. ticket)
  end
end
redis.call('HSET', places, ticket, text)

local rank, ahead = never and -1 or before(lock.name), ''
if rank > 0 then
  local m = redis.call('ZREVRANGEBYLEX', queue, '(' .. lock.name .. ' ' .. order .. ' ' .. ticket, '[' .. lock.name .. ' ', 'LIMIT', 0, 1)[1]
  local p = place(string.match(m, '^.* (%S+)$'))
  ahead = p and p.run or ''
end
local a = answer('waiting', nil, lock, rank + 1, ahead)
a[11], a[12], a[13] = cancels(), woken, rest and string.format('%.0f', rest) or 0
return finish(a)
