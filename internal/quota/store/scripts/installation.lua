-- SPDX-License-Identifier: Apache-2.0
-- KEYS[1] names the installation whose this Redis is, KEYS[2] has '<installation> <namespace>': where its operators are, KEYS[3] the name of this Redis.
-- ARGV: who asks; the installation it takes over, or ''; '1' if it may claim what is nobody's; its namespace, or '' where that does not matter; the
-- namespace it takes over, or ''; what this Redis is to be called if it has no name, or ''.
-- Where the one to take over is named, or none, who asks is from now on. A namespace of another installation is none: versions from before it change the
-- name alone. Returns who is named before, '' for none, and now; where its operators were, and are now; and the name of this Redis, '' for none, which only
-- its own operators may give it.
-- ARGV[7] is '1' where it is to be used without a name as long as it takes none.
-- It writes only what changes: a Redis that takes no writes now, as a full one, is looked at all the same.
local before, now = redis.call('GET', KEYS[1]) or '', ''
if before == ARGV[2] and before ~= '' or before == '' and ARGV[3] == '1' then
  if before ~= ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[1])
  end
  now = ARGV[1]
else
  now = before
end
if now ~= ARGV[1] then
  return {before, now, '', ARGV[4], ''}
end
local function called()
  local name = redis.call('GET', KEYS[3]) or ''
  if name == '' and ARGV[6] ~= '' then
    local set = ARGV[7] == '1' and redis.pcall or redis.call
    local refused = set('SET', KEYS[3], ARGV[6]).err
    name = refused and '' or ARGV[6]
  end
  return name
end
if ARGV[4] == '' then
  return {before, now, '', ARGV[4], called()}
end
local name = ARGV[1] .. ' '
local text = redis.call('GET', KEYS[2]) or ''
local home = string.sub(text, 1, #name) == name and string.sub(text, #name + 1) or ''
if home == '' or home == ARGV[5] then
  if home ~= ARGV[4] then
    redis.call('SET', KEYS[2], name .. ARGV[4])
  end
  return {before, now, home, ARGV[4], called()}
end
return {before, now, home, home, home == ARGV[4] and called() or ''}
