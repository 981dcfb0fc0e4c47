-- SPDX-License-Identifier: Apache-2.0
-- What the scripts of locks share.
--
-- KEYS[1] holds: a hash, with the epoch, and ':fence', the last fence that was given
--           'h' .. ticket -> '<version> <fence> <run> <tree> <permits> <lock> ...'
--           ':opened'     -> when the data was opened, ms
--           'u' .. lock   -> permits that are held of it; of its companion: that are reserved
--           's' .. lock   -> '<period> <time> <time> ...', ms: when holds of it began in the last period of its rate
-- KEYS[2] queue: a sorted set with scores of 0, so in order of bytes: '<lock> <order> <ticket>' of who waits, but not for more than there is
-- KEYS[3] places: a hash, ticket -> '<order> <run> <tree> <why it was refused, or -> <permits> <limit> <1 if ordered, :rate> <lock> ...'
-- KEYS[4] holders: a sorted set as the queue: '<lock> <fence> <ticket>' of who holds, for people and for CancelOldest
--
-- A rate is '<starts>/<period>/<since>', ms: so many holds of the lock may begin in a period; none that began before since counts.
-- An order is '<priority>.<created>.<version>', digits of fixed lengths; the part from the first point on is an age. Who came later than he
-- was created, as a step or a child run does, has '@<came>' at its end.
local holds, queue, places, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local window = 256 -- how many that wait for a lock are looked at in one call; the resync looks at all, and wakes of those that wait for rates alone the first 16

local portion = 1000 -- about how many fields, or members, one call reads of what all tickets have

-- A portion of the fields of a hash, as field, value, field, value... Returns where to go on, '0' at the end, them, and '' or why all
-- are read at once: an account whose rights are of an older version may not HSCAN.
local function scan(hash, cursor)
  local got = redis.pcall('HSCAN', hash, cursor, 'COUNT', portion)
  if got.err then
    return '0', redis.call('HGETALL', hash), got.err
  end
  return got[1], got[2], ''
end

local function rateof(text)
  local starts, period, since = string.match(text, '(%d+)/(%d+)/(%d+)$')
  return starts and {starts = tonumber(starts), period = tonumber(period), since = tonumber(since)} or nil
end

local function words(text)
  local all = {}
  for word in string.gmatch(text, '%S+') do
    all[#all + 1] = word
  end
  return all
end

local function holdof(text)
  local w = words(text)
  local h = {version = w[1], fence = w[2], run = w[3], tree = w[4], locks = {}}
  for i = 5, #w, 2 do
    h.locks[#h.locks + 1] = {permits = tonumber(w[i]), name = w[i + 1]}
  end
  return h
end

local function hold(ticket)
  local text = redis.call('HGET', holds, 'h' .. ticket)
  return text and holdof(text) or nil
end

local function place(ticket)
  local text = redis.call('HGET', places, ticket)
  if not text then
    return nil
  end
  local w = words(text)
  local p = {order = w[1], run = w[2], tree = w[3], refused = w[4] ~= '-' and w[4] or nil, wants = {}}
  for i = 5, #w, 4 do
    p.wants[#p.wants + 1] = {permits = tonumber(w[i]), limit = tonumber(w[i + 1]), ordered = string.sub(w[i + 2], 1, 1) == '1', rate = rateof(w[i + 2]), name = w[i + 3]}
  end
  return p
end

local function used(name)
  return tonumber(redis.call('HGET', holds, 'u' .. name) or '0')
end

-- A hold is reserved where nobody knows whether its ticket was granted it: each of its locks has a companion, whose name begins so, with
-- as many permits. No lock that is asked for begins so.
local companion = 'mutex::'

-- When the ticket of an order came, whatever its place in line: of two, the later one is greater. A place of an older operator does not say
-- it: its ticket came when it was created.
local function arrival(order)
  return (string.match(order, '@(%d+)$') or string.sub(order, 12, 23)) .. string.sub(order, 24, 44)
end

-- How many permits of a lock are reserved, of those that are used.
local function reserved(name)
  return used(companion .. name)
end

local function isreserved(h)
  for _, l in ipairs(h.locks) do
    if string.sub(l.name, 1, #companion) == companion then
      return true
    end
  end
  return false
end

local function count(name, permits)
  if redis.call('HINCRBY', holds, 'u' .. name, permits) <= 0 then
    redis.call('HDEL', holds, 'u' .. name)
  end
end

local moment -- one for the whole call, whatever the server's clock does meanwhile
local function present()
  moment = moment or now()
  return moment
end

local function notestarts(name, period, all)
  local text = string.format('%.0f', period)
  for _, at in ipairs(all) do
    text = text .. string.format(' %.0f', at)
  end
  redis.call('HSET', holds, 's' .. name, text)
end

-- When holds of a lock began in the last period, in order. A time that a wrong clock gave, which is still to come, becomes the present,
-- for good: else it would stay in the period until the clock is there.
local known = {} -- by lock, so that it is read once in a call
local function starts(name, period)
  if known[name] then
    return known[name]
  end
  local all, every, ahead = {}, {}, false
  local of, times = string.match(redis.call('HGET', holds, 's' .. name) or '', '^(%d+)(.*)$')
  for at in string.gmatch(times or '', '%d+') do
    at = tonumber(at)
    if at > present() then
      at, ahead = present(), true
    end
    every[#every + 1] = at
    if at > present() - period then
      all[#all + 1] = at
    end
  end
  if ahead then
    notestarts(name, of, every)
  end
  known[name] = all
  return all
end

local function begin(name, rate)
  local all = starts(name, rate.period)
  all[#all + 1] = present()
  notestarts(name, rate.period, all)
end

-- When the data was opened, by the clock of this server: its term may be later. Likewise never still to come.
local function opened()
  local at = tonumber(redis.call('HGET', holds, ':opened') or '')
  if not at or at > present() then
    at = present()
    redis.call('HSET', holds, ':opened', string.format('%.0f', at))
  end
  return at
end

-- How long no hold of a lock may begin by its rate, if more are about to: ms, 0 for not at all. What began before the data was opened
-- is not known. It may have been as much as the rate lets.
local function toosoon(name, rate, more)
  local rest = opened() + rate.period - present()
  if rate.since <= opened() and rest > 0 then
    return rest
  end
  local all = starts(name, rate.period)
  local over = #all + more + 1 - rate.starts
  if over <= 0 then
    return 0
  end
  return (all[over] or present()) + rate.period - present()
end

local function keephold(ticket, h)
  local text = h.version .. ' ' .. h.fence .. ' ' .. h.run .. ' ' .. h.tree
  for _, l in ipairs(h.locks) do
    text = text .. ' ' .. l.permits .. ' ' .. l.name
  end
  redis.call('HSET', holds, 'h' .. ticket, text)
end

local function index(name, h, ticket)
  return name .. ' ' .. string.rep('0', 16 - #h.fence) .. h.fence .. ' ' .. ticket
end

local function enter(ticket, h)
  keephold(ticket, h)
  for _, l in ipairs(h.locks) do
    count(l.name, l.permits)
    redis.call('ZADD', holders, 0, index(l.name, h, ticket))
  end
end

local function quit(ticket, h)
  redis.call('HDEL', holds, 'h' .. ticket)
  for _, l in ipairs(h.locks) do
    count(l.name, -l.permits)
    redis.call('ZREM', holders, index(l.name, h, ticket))
  end
end

-- Leaves the queues of all its locks. Returns 1 if it had a place.
local function leave(ticket)
  local p = place(ticket)
  if not p then
    return 0
  end
  local left = 0 -- queues: who can never have its locks is in none
  for _, w in ipairs(p.wants) do
    left = left + redis.call('ZREM', queue, w.name .. ' ' .. p.order .. ' ' .. ticket)
  end
  return redis.call('HDEL', places, ticket), left
end

-- Keeps the word of a refusal in its place: whoever is refused once is refused each time.
local function refuse(ticket, p, why)
  leave(ticket)
  redis.call('HSET', places, ticket, p.order .. ' ' .. p.run .. ' ' .. p.tree .. ' ' .. why)
end

-- A queue without its places is what an eviction left: whoever waits asks again. So does who has a place and is in no queue, which the
-- resync sees. Holders that were lost are entered again by locks_snapshot.lua.
local function heal()
  if redis.call('EXISTS', queue) == 1 and redis.call('EXISTS', places) == 0 then
    redis.call('DEL', queue)
  end
end

-- Who waits for any of the locks, in order; with member only those before it.
local function line(wants, order, ticket)
  local seen, all = {}, {}
  for _, w in ipairs(wants) do
    local stop = order and '(' .. w.name .. ' ' .. order .. ' ' .. ticket or '(' .. w.name .. '!'
    for _, m in ipairs(redis.call('ZRANGEBYLEX', queue, '[' .. w.name .. ' ', stop, 'LIMIT', 0, window)) do
      local at, who = string.match(m, '^%S+ (%S+) (%S+)$')
      if not seen[who] then
        seen[who] = true
        all[#all + 1] = {order = at, ticket = who, key = at .. ' ' .. who}
      end
    end
  end
  table.sort(all, function(a, b) return a.key < b.key end)
  return all
end

-- Promises the permits of all wants, and that a hold of each begins: what is promised is by lock, and by '#' .. lock.
local function promise(promised, wants)
  for _, w in ipairs(wants) do
    promised[w.name] = (promised[w.name] or 0) + w.permits
    promised['#' .. w.name] = (promised['#' .. w.name] or 0) + 1
  end
end

-- Whether there is room for all wants, beside what is promised to others; else the first lock without, and if it is only for the rate
-- of that lock, for how long. current are wants of now, by lock: those in places may be old.
local function fits(wants, promised, current)
  for _, w in ipairs(wants) do
    if used(w.name) + (promised[w.name] or 0) + w.permits > (current[w.name] or w).limit then
      return false, w
    end
  end
  for _, w in ipairs(wants) do
    local rate = (current[w.name] or w).rate
    local rest = rate and toosoon(w.name, rate, promised['#' .. w.name] or 0) or 0
    if rest > 0 then
      return false, w, rest
    end
  end
  return true
end

-- Whether nobody is before it in the queues of ordered locks, but those who get theirs now: got is how many these are, by lock. They
-- are counted, since to look at each of them would take the square of a queue.
local function heads(p, ticket, got)
  for _, w in ipairs(p.wants) do
    if w.ordered and redis.call('ZLEXCOUNT', queue, '[' .. w.name .. ' ', '(' .. w.name .. ' ' .. p.order .. ' ' .. ticket) ~= (got[w.name] or 0) then
      return false
    end
  end
  return true
end

-- Counts one that gets its locks, once in the queue of each.
local function counts(p, got)
  local seen = {}
  for _, w in ipairs(p.wants) do
    if not seen[w.name] then
      seen[w.name], got[w.name] = true, (got[w.name] or 0) + 1
    end
  end
end

-- Those in a line that can have all of their locks now, in order, each beside those before it. It ends when stop(promised) says so,
-- or when all locks of a list have no room for one more permit. promised is what is promised already; what they get is added to it.
-- Who ends before that, as goes(ticket, place, got) says, is in nobody's way: it adds to got those that do so before this place.
-- Returns them; and those who are the first to wait only for the rate of a lock, and which locks those are.
local function runnable(all, current, stop, names, promised, goes)
  promised = promised or {}
  local got, list, full, open, late = {}, {}, {}, names and #names or 1, {}
  for _, m in ipairs(all) do
    local p = place(m.ticket)
    local ok, short, rest = false, nil, nil
    if p and not p.refused and not (goes and goes(m.ticket, p, got)) then
      ok, short, rest = fits(p.wants, promised, current)
    end
    if rest and not late[short.name] then
      late[#late + 1] = {ticket = m.ticket, run = p.run}
      late[short.name] = true
    end
    if ok and heads(p, m.ticket, got) then
      promise(promised, p.wants)
      counts(p, got)
      list[#list + 1] = {ticket = m.ticket, run = p.run}
      if stop and stop(promised) then
        break
      end
    elseif short and (rest or short.permits == 1) and not full[short.name] then
      full[short.name] = true
      for _, n in ipairs(names or {}) do
        open = n.name == short.name and open - 1 or open
      end
      if open == 0 then
        break
      end
    end
  end
  return list, late
end

-- Whom to wake for locks that have room, or whose line moved: ticket, run, ticket, run... Who is first in line for a rate is to ask
-- how long; nobody else keeps that time.
local function wake(answer, names)
  local list, late = runnable(line(names), {}, nil, names)
  for _, one in ipairs(late) do
    list[#list + 1] = one
  end
  for _, one in ipairs(list) do
    answer[#answer + 1] = one.ticket
    answer[#answer + 1] = one.run
  end
  return answer
end
