#!lua
-- Leases away, whatever their token is; ARGV as of settle.lua, of one run of jobs.
local ids = {}
for at = 10, #ARGV do ids[at - 9] = ARGV[at] end
redis.call('ZREM', KEYS[9], unpack(ids))
redis.call('HDEL', KEYS[1], unpack(ids))
return { {}, {} }
