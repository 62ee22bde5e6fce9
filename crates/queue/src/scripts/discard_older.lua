-- Deletes the oldest of a queue's dead jobs.
--
-- KEYS    as in lib.lua, the one queue
-- ARGV    1 now, 2 wake channel (unused), 3 minimum age in ms, 4 maximum number
-- RETURNS number of discarded jobs; below the maximum if no others are that old
-- BOUND   500 jobs

local many = math.min(tonumber(ARGV[4]), 500)
local old = redis.call('ZRANGEBYSCORE', dead_key(1), '-inf', now - tonumber(ARGV[3]), 'LIMIT', 0, many)
in_chunks('ZREM', dead_key(1), old)
in_chunks('HDEL', DEAD, old)
return #old
