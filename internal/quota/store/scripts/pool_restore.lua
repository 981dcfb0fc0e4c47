-- SPDX-License-Identifier: Apache-2.0
-- Gives slots to runs that are known to be admitted, whatever the limits. With a token it ends a rebuild; if somebody else ended it
-- already the slots are added: too many for a moment is safe, too few is not.
--
-- ARGV[1] floor  ARGV[2] token of the rebuild, or ''  ARGV[3] 'more': the rebuild goes on after this
-- ARGV[4...] uid, tenant, name, ...
--
-- Returns {'ok', term, used, waiting, reserved of all tenants, slots added}, {'closed', why}, or {'lost'} when the rebuild is
-- not known.
local at, added = now(), 0
heal(at)
local term, why = open(ARGV[1])
if not term then
  if ARGV[2] == '' then
    return {'closed', why}
  end
  term = reopen(ARGV[2], ARGV[1], ARGV[3])
  if not term then
    return {'lost'}
  end
  if ARGV[3] ~= 'more' then
    recount() -- the closed data may be a part of what it was
  end
end
for i = 4, #ARGV, 3 do
  added = added + take(ARGV[i], ARGV[i + 1], ARGV[i + 2], at)
end
touch()
local answer = head(term, '')
answer[6] = added
return answer
