-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1] names the installation whose this Redis is. ARGV: who asks, and whose it takes over, or ''.
-- Where none is named, or the one to take over, who asks is from now on. Returns who is named before, '' for none, and now.
local before = redis.call('GET', KEYS[1]) or ''
if before == '' or before == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[1])
  return {before, ARGV[1]}
end
return {before, before}
