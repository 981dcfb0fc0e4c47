-- SPDX-License-Identifier: Apache-2.0
-- Ends the wait of a ticket, if it is the one that was judged: it may have been granted since, or wait for something else.
--
-- ARGV[1] floor  ARGV[2] ticket  ARGV[3] why  ARGV[4] its place as it was judged, as in locks.lua
--
-- Returns {'ok', term, 1 if it is refused}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
if redis.call('HGET', places, ARGV[2]) ~= ARGV[4] then
  return {'ok', term, 0}
end
local p = place(ARGV[2])
if not p.refused then
  refuse(ARGV[2], p, ARGV[3])
end
return {'ok', term, 1}
