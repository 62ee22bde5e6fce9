#!lua
-- Jobs into the set of those due, whatever is there; ARGV as of enqueue.lua.
local due, codes = {}, {}
for at = 4, #ARGV, 4 do
  local n = #codes + 1
  due[2 * n - 1], due[2 * n], codes[n] = ARGV[at + 2], ARGV[at + 1], 1
end
redis.call('ZADD', KEYS[8], unpack(due))
return codes
