#!lua
-- One code per job, as an insert answers; ARGV as of enqueue.lua.
local codes = {}
for i = 1, (#ARGV - 3) / 4 do codes[i] = 1 end
return codes
