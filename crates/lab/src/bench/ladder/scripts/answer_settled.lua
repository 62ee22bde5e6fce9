#!lua
-- One code per job, as a settle answers; ARGV as of settle.lua, of one run of jobs.
local codes = {}
for i = 1, #ARGV - 9 do codes[i] = 1 end
return codes
