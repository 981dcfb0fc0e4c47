-- Takes the run lock, unless another token owns it. Idempotent: a token that owns the lock keeps it, with its fence.
--
-- KEYS[1] lock   KEYS[2] fence
-- ARGV[1] token  ARGV[2] token that may be replaced, or ''  ARGV[3] TTL of the lock, ms
-- ARGV[4] floor: the fence is above it                       ARGV[5] TTL of the fence, ms
--
-- Returns the fence (1 or more), or 0 when the lock is busy.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] and owner ~= ARGV[2] then
  return 0
end

local floor = tonumber(ARGV[4])
local fence = 0
if owner == ARGV[1] then
  fence = tonumber(redis.call('GET', KEYS[2]) or '0')
end
if fence <= floor then
  fence = redis.call('INCR', KEYS[2])
  if fence <= floor then
    fence = floor + 1
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
  end
end

redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return fence
