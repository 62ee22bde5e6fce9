-- Writes the epoch after a rebuild, but only if Redis was not flushed since the rebuild started.
--
-- KEYS    1 rebuilding, 2 epoch
-- ARGV    1 the marker set at the start of the rebuild, 2 the epoch
-- RETURNS 1 written, 0 the marker no longer exists: rebuild again
-- BOUND   constant

if string.match(redis.call('GET', KEYS[1]) or '', '^%S+') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
return 1
