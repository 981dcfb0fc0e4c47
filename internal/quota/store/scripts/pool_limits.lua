-- SPDX-License-Identifier: Apache-2.0
-- Tells a pool its limits, unless it knows newer ones.
--
-- ARGV[1] floor  ARGV[2] version  ARGV[3] total  ARGV[4] max of each tenant, below 0: none
-- ARGV[5...] of tenants with limits of their own: name, '<max> <guaranteed> <weight>', ...
--
-- Returns {'ok', term}, or {'closed', why}.
local term, why = open(ARGV[1])
if not term then
  return {'closed', why}
end
if behind(ARGV[2]) then
  heal(now()) -- before what is left gets turns again
  redis.call('DEL', limits)
  redis.call('HSET', limits, ':version', ARGV[2], ':total', ARGV[3], ':max', ARGV[4])
  for i = 5, #ARGV, 2 do
    redis.call('HSET', limits, ARGV[i], ARGV[i + 1])
  end
  recount()
  touch()
end
return {'ok', term}
