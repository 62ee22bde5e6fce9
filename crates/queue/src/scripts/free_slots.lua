-- Releases the slots of holders.
--
-- KEYS    one per limit with slots
-- ARGV    the holders
-- RETURNS nothing
-- BOUND   the limits; the holders, at most 500

for _, key in ipairs(KEYS) do redis.call('ZREM', key, unpack(ARGV)) end
return 0
