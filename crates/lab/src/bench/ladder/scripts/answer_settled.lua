#!lua
-- No job refused and no follow-up left dead, as a settle answers; ARGV as of settle.lua.
return { {}, {} }
