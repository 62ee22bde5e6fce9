-- Lets a holder keep its slots for longer.
--
-- KEYS    one per limit with slots
-- ARGV    1 now in ms (empty: this server's clock), 2 holder, 3 how long a slot lasts in ms
-- RETURNS nothing
-- BOUND   the limits
--
-- A slot that is gone (its time was over, or Redis lost it) is taken again, be it one too many: the work goes on, so it is
-- to be counted.

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
