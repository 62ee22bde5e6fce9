-- Publishes the due time up to which a rebuild has inserted all jobs, and extends the rebuild's deadline.
--
-- KEYS    1 rebuilding
-- ARGV    1 the marker set at the start of the rebuild, 2 the horizon in ms, 3 seconds after which the rebuild counts
--         as failed
-- RETURNS 1 published, 0 the marker no longer exists: rebuild again
-- BOUND   constant

if string.match(redis.call('GET', KEYS[1]) or '', '^%S+') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'EX', ARGV[3])
return 1
