-- Takes the lock of an order for a driver who accepts an offer.
--
-- KEYS    1 lock, 2 offers: offer -> driver; 'taken' -> the accepted offer
-- ARGV    1 driver, 2 offer, 3 seconds until the lock expires
-- RETURNS the answer, the driver that holds the lock (empty: the lock was not read), the offers. Answers: 'unknown' Redis
--         does not know the offer; 'own' this driver holds the lock or has taken the order; 'taken' by another offer;
--         'won' the lock; 'lost' another driver holds the lock
-- BOUND   the drivers asked at once

local known = redis.call('HMGET', KEYS[2], ARGV[2], 'taken')
if known[1] ~= ARGV[1] then return { 'unknown', '', {} } end
local offers = redis.call('HGETALL', KEYS[2])
if known[2] == ARGV[2] then return { 'own', '', offers } end
if known[2] then return { 'taken', '', offers } end
local holder = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[3], 'GET')
if not holder then return { 'won', ARGV[1], offers } end
if holder == ARGV[1] then return { 'own', holder, offers } end
return { 'lost', holder, offers }
