-- SPDX-License-Identifier: Apache-2.0
-- Ends the wait of a ticket, if it waits.
--
-- ARGV[1] floor  ARGV[2] ticket  ARGV[3] why
--
-- Returns {'ok', term}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
local p = place(ARGV[2])
if p and not p.refused then
  refuse(ARGV[2], p, ARGV[3])
end
return {'ok', term}
