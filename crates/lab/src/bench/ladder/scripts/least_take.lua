#!lua
-- Jobs from the set of those due, whether they are or not, into that of the leased, with a lease each; ARGV as of take.lua.
local popped = redis.call('ZPOPMIN', KEYS[8], ARGV[7])
if #popped == 0 then return { {}, {} } end
local ids, dues, leased, leases = {}, {}, {}, {}
for n = 1, #popped / 2 do
  local id = popped[2 * n - 1]
  ids[n], dues[n] = id, popped[2 * n]
  leased[2 * n - 1], leased[2 * n] = ARGV[3], id
  leases[2 * n - 1], leases[2 * n] = id, ARGV[4]
end
redis.call('ZADD', KEYS[9], unpack(leased))
redis.call('HSET', KEYS[1], unpack(leases))
return { ids, dues }
