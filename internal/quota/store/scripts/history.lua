-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1] names the installation whose this Redis is, KEYS[2] is the highest revision of the API server that it saw. ARGV: who asks; a revision that
-- it saw, '0' for none. Raises the mark, and never lowers it. Returns the mark, '0' for none, and in the Redis of another one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return '0'
end
local mark = redis.call('GET', KEYS[2]) or '0'
-- They are compared as texts: Lua has no whole numbers above 2^53.
if #ARGV[2] > #mark or #ARGV[2] == #mark and ARGV[2] > mark then
  redis.call('SET', KEYS[2], ARGV[2])
  return ARGV[2]
end
return mark
