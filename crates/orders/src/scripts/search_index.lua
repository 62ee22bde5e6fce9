-- Returns the drivers nearest to a point, if the index is trusted.
--
-- KEYS    1 marker that the index is complete, 2 index
-- ARGV    1 longitude, 2 latitude, 3 radius in m, 4 maximum number of drivers
-- RETURNS nothing while the marker is missing; else the drivers, nearest first
-- BOUND   the drivers within the radius

if redis.call('EXISTS', KEYS[1]) == 0 then return false end
return redis.call('GEOSEARCH', KEYS[2], 'FROMLONLAT', ARGV[1], ARGV[2], 'BYRADIUS', ARGV[3], 'm', 'ASC', 'COUNT', ARGV[4])
