-- SPDX-License-Identifier: Apache-2.0
-- Begins a rebuild: closes the data, and marks it with a token, by which its end knows that nothing was lost in between. All who
-- rebuild at the same time get the same token. Data that is there stays: rather too much than too little.
--
-- KEYS[1] the hash  ARGV[1] floor  ARGV[2] token  ARGV[3] 'shut': closes what is open, too, and a rebuild that began before is lost
--
-- Returns {'ok', token}. If the data is open already nothing happens but for shut.
if ARGV[3] ~= 'shut' and open(ARGV[1]) then
  return {'ok', ARGV[2]}
end
local id = server()
local token, of = string.match(redis.call('HGET', data, ':rebuild') or '', '^(%S+) (.+)$')
if of == id and ARGV[3] ~= 'shut' then
  return {'ok', token}
end
redis.call('HDEL', data, ':epoch')
redis.call('HSET', data, ':rebuild', ARGV[2] .. ' ' .. id)
tidy()
return {'ok', ARGV[2]}
