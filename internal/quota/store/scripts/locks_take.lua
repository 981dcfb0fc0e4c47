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

-- What ends with the runs that are to be cancelled: a run ends with all its tickets, one at the top with its tree, too. What is below another
-- one ends with that, but no ticket says so: it counts as what goes on. What the ends free is promised as less than nothing.
local promised, ended = {}, {} -- ended: UIDs of runs, and trees
local tickets, seen, freed = {}, {}, {} -- tickets: that hold a lock that was looked at, by UID and by tree
local function uidof(other)
  return string.match(other, '^[^/]+')
end

local function free(other)
  local h = not freed[other] and hold(other)
  for _, l in ipairs(h and h.locks or {}) do
    promised[l.name] = (promised[l.name] or 0) - l.permits
  end
  freed[other] = true
end

-- The tickets that hold a lock, the oldest first. Of what these runs hold of it nothing is missed, and of the rest of their trees what is among
-- the first of them, as each of those costs a read of its hold.
local function holding(name)
  if seen[name] then
    return seen[name]
  end
  local all = {}
  for i, m in ipairs(redis.call('ZRANGEBYLEX', holders, '[' .. name .. ' ', '(' .. name .. '!')) do
    local other = string.match(m, '^.* (%S+)$')
    local h = i <= window and hold(other)
    for _, key in ipairs({uidof(other), h and h.tree or nil}) do
      if ended[key] then
        free(other)
      end
      tickets[key] = tickets[key] or {}
      table.insert(tickets[key], other)
    end
    all[i] = other
  end
  seen[name] = all
  return all
end

-- Counts the run of a ticket, and what is below one at the top, as ended.
local function choose(other, h)
  for _, key in ipairs({uidof(other), h.tree == h.run and h.tree or nil}) do
    ended[key] = true
    for _, o in ipairs(tickets[key] or {}) do
      free(o)
    end
  end
end

local function over(w)
  return used(w.name) + (promised[w.name] or 0) + w.permits - w.limit
end

local function lacks(w)
  if over(w) > 0 then
    holding(w.name)
  end
  return over(w) > 0
end

-- Whether a place goes with what ends.
local function goes(other, p)
  return ended[uidof(other)] or p and ended[p.tree]
end

-- Whether anybody stays before it in the line of an ordered lock.
local function stands(w)
  local stay = w.ordered and before(w.name) or 0
  for _, m in ipairs(stay > 0 and line({w}, order, ticket) or {}) do
    if not goes(m.ticket, place(m.ticket)) then
      return true
    end
    stay = stay - 1
  end
  return stay > 0
end

-- What tells runnable who of those before it, in order, goes. What the ends free of the other locks of those that stay, and who goes from the ordered
-- lines of these, is looked at once for each lock.
local function whogoes()
  local gone = {}
  local function note(name, key, got) -- who goes from a line before a place
    if not gone[name] then
      gone[name] = {at = 1}
      for _, m in ipairs(line({{name = name}})) do
        if goes(m.ticket, place(m.ticket)) then
          table.insert(gone[name], m.key)
        end
      end
    end
    local keys = gone[name]
    while keys[keys.at] and keys[keys.at] < key do
      keys.at, got[name] = keys.at + 1, (got[name] or 0) + 1
    end
  end
  return function(other, p, got)
    if goes(other, p) then
      return true
    end
    for _, w in ipairs(p.wants) do
      holding(w.name)
      if w.ordered then
        note(w.name, p.order .. ' ' .. other, got)
      end
    end
  end
end

-- Whose holds are to end so that it can begin, as ticket, run, lock... Nobody's where it could not begin even then: a lock has no room for it, or is
-- about to be taken by one before it, its rate rests, or somebody is before it in its line. Nor does a run end itself, or another of its tree: that may
-- be the one that it is below. Nor whoever has locks reserved: it may never have held them.
--
-- To look at those before it costs Redis most, as a read of each place: so that comes last, where all else has room. They are looked at with
-- what is freed: it is theirs first, and what is left then is for this one. Who ends is not among them.
local function cancels()
  local uid, list = uidof(ticket), {}
  for _, w in ipairs(wants) do
    for _, other in ipairs(w.busy == 'CancelOldest' and lacks(w) and holding(w.name) or {}) do
      if over(w) <= 0 then
        break
      end
      local h = not freed[other] and uidof(other) ~= uid and hold(other)
      if h and h.tree ~= tree and not isreserved(h) then
        list[#list + 1], list[#list + 2], list[#list + 3] = other, h.run, w.name
        choose(other, h)
      end
    end
  end
  local function begins()
    for _, w in ipairs(wants) do
      local rests = w.rate and toosoon(w.name, w.rate, promised['#' .. w.name] or 0) > 0
      if lacks(w) or rests or stands(w) then
        return false
      end
    end
    return true
  end
  if #list == 0 or not begins() then
    return {}
  end
  runnable(line(wants, order, ticket), current, nil, nil, promised, whogoes())
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
