-- Gives a holder's slots back.
--
-- KEYS    one per limit with slots
-- ARGV    1 holder
-- RETURNS nothing
-- BOUND   the limits

for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
return 0
