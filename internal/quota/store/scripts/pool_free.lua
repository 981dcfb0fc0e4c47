-- SPDX-License-Identifier: Apache-2.0
-- Takes from runs whatever they have: slot, place, reservation. Gives what is free to those who are next.
--
-- ARGV[1] floor  ARGV[2] version of the limits that the caller knows; '': the policy is gone, and nobody is next  ARGV[3...] uids; behind '~' one that loses its place only
--
-- Returns {'ok', term, used, waiting, reserved of all tenants, slots freed, places freed, uid, name, ... of who got slots}, {'limits'},
-- or {'closed', why}; what the runs had is gone even then, but the rebuild that is due may bring it back, so the caller repeats it.
local slotsFreed, placesFreed, at = 0, 0, now()
heal(at)
for i = 3, #ARGV do
  local waits = string.match(ARGV[i], '^~(.*)$')
  if not waits then
    slotsFreed = slotsFreed + quit(ARGV[i])
    unreserve(ARGV[i])
  end
  placesFreed = placesFreed + leave(waits or ARGV[i])
end
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
touch()
local given = {}
if ARGV[2] ~= '' then
  if behind(ARGV[2]) then
    return {'limits'}
  end
  given = fill(at)
end
local answer = head(term, '')
answer[6], answer[7] = slotsFreed, placesFreed
for i, word in ipairs(given) do
  answer[7 + i] = word
end
return answer
