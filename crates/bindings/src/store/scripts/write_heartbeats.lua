-- Writes the heartbeats of bindings.
--
-- KEYS    hb of each binding
-- ARGV    the time of each heartbeat in ms
-- RETURNS the number of heartbeats
-- BOUND   the number of keys

for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i]) end
return #KEYS
