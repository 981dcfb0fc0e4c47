-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1] names the installation whose this Redis is, KEYS[2] has '<installation> <revision>': the highest revision of the API server that it saw.
-- ARGV: who tells; a revision that it saw. Raises the mark, and never lowers it. In the Redis of another one it changes nothing. A mark of another
-- one, as where a version without marks took this Redis over, is none, and so is what cannot be read.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local name = ARGV[1] .. ' '
local text = redis.call('GET', KEYS[2]) or ''
local mark = string.sub(text, 1, #name) == name and string.match(string.sub(text, #name + 1), '^%d+$') or ''
-- They are compared as texts: Lua has no whole numbers above 2^53. None has more than 20 digits.
if #mark > 20 or #ARGV[2] > #mark or #ARGV[2] == #mark and ARGV[2] > mark then
  redis.call('SET', KEYS[2], name .. ARGV[2])
end
return 1
