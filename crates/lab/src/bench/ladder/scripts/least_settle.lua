#!lua
-- Leases away, whatever their token is; ARGV as of settle.lua, of one run of jobs.
local ids, codes = {}, {}
for at = 10, #ARGV do
  local n = at - 9
  ids[n], codes[n] = ARGV[at], 1
end
redis.call('ZREM', KEYS[9], unpack(ids))
redis.call('HDEL', KEYS[1], unpack(ids))
return codes
