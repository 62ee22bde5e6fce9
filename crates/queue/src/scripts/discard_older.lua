-- Forgets the oldest of a queue's dead jobs.
--
-- KEYS    as in lib.lua, the one queue
-- ARGV    1 now, 2 wake channel (unused), 3 age in ms that is to be kept, 4 how many at most
-- RETURNS how many were discarded; fewer than asked for: no more are that old
-- BOUND   500 jobs

local many = math.min(tonumber(ARGV[4]), 500)
local old = redis.call('ZRANGEBYSCORE', dead_key(1), '-inf', now - tonumber(ARGV[3]), 'LIMIT', 0, many)
in_chunks('ZREM', dead_key(1), old)
in_chunks('HDEL', DEAD, old)
return #old
