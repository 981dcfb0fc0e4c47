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
local token, of, least = begun()
-- The new term has to be above all that anybody has seen, whoever ends the rebuild: else who has seen more closes the data again.
local seen = math.max(least, tonumber(ARGV[1]), tonumber(string.match(redis.call('HGET', data, ':epoch') or '', '^%d+') or '0'))
local text = ' ' .. id
if seen >= now() then -- a clock was put right; else the time is enough
  text = text .. ' ' .. string.format('%.0f', seen)
end
if of == id and ARGV[3] ~= 'shut' then
  if seen > least then
    redis.call('HSET', data, ':rebuild', token .. text)
  end
  return {'ok', token}
end
redis.call('HDEL', data, ':epoch')
redis.call('HSET', data, ':rebuild', ARGV[2] .. text)
tidy()
return {'ok', ARGV[2]}
