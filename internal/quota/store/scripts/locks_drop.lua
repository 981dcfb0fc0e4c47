-- SPDX-License-Identifier: Apache-2.0
-- Takes from tickets what they have. With a version only a grant of an older one: nobody can write that any more, since the run
-- was seen at this version without it. Who was superseded stays so until it is over: a later one went before it.
--
-- All of Redis waits for a script, and each lock that is touched costs a look at those who wait for it. So it ends after few locks, but
-- not within a ticket: the caller goes on after those that it looked at.
--
-- ARGV[1] floor  ARGV[2...] ticket, version or '' for whatever version, ...
--
-- Returns {'ok', term, holds dropped, places dropped, {ticket, run, ... to wake}, {lock, ms that it was held by who is over, ... where that is known},
-- tickets looked at}, or {'closed', why}.
local few = 16
-- How far ahead of the clock fences are after many grants at once, ms. Where one is further ahead, a clock was: then nobody knows for how
-- long its hold lasted, and 0 would have the alert take all that come after for long.
local burst = 1000
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
heal()
local freed, left, done, touched, names, ended = 0, 0, 0, {}, {}, {}
local function touch(name)
  if not names[name] then
    names[name] = true
    touched[#touched + 1] = {name = name}
  end
end
for i = 2, #ARGV, 2 do
  if #touched >= few then
    break
  end
  done = done + 1
  local ticket, seen = ARGV[i], ARGV[i + 1]
  local h, p = hold(ticket), place(ticket)
  if h and (seen == '' or h.version < seen) then
    quit(ticket, h)
    freed = freed + 1
    local over = seen == '' and not isreserved(h) -- else nobody may have held it
    local held = present() - tonumber(h.fence) -- a fence is not below the milliseconds of its hold
    over = over and held > -burst
    for _, l in ipairs(h.locks) do
      touch(l.name)
      if over then
        ended[#ended + 1] = l.name
        ended[#ended + 1] = string.format('%.0f', math.max(0, held))
      end
    end
  end
  if p and (p.refused ~= 'Superseded' or seen == '') then
    left = left + leave(ticket)
    for _, w in ipairs(p.wants) do
      touch(w.name)
    end
  end
end
return {'ok', term, freed, left, wake({}, touched), ended, done}
