-- Renews the slots of a holder.
--
-- KEYS    one per limit with slots
-- ARGV    1 now in ms (empty: this server's clock), 2 holder, 3 duration of a slot in ms
-- RETURNS nothing
-- BOUND   the limits
--
-- A missing slot (expired, or lost by Redis) is taken again, even above the limit: the work still runs, so it must be
-- counted.

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + tonumber(ARGV[3]), ARGV[2])
  redis.call('PEXPIRE', key, ARGV[3])
end
return 0
