-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1] names the installation whose this Redis is. ARGV: who asks; whose it takes over, or ''; '1' if it may claim what is nobody's.
-- Where the one to take over is named, or none, who asks is from now on. Returns who is named before, '' for none, and now.
local before = redis.call('GET', KEYS[1]) or ''
if before == ARGV[2] and before ~= '' or before == '' and ARGV[3] == '1' then
  redis.call('SET', KEYS[1], ARGV[1])
  return {before, ARGV[1]}
end
return {before, before}
