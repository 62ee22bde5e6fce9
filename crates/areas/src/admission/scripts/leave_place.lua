-- Gives a place back and updates the average wait.
--
-- KEYS    1 set of waiting orders, 2 average wait
-- ARGV    1 order, 2 seconds it waited (empty: it found no driver), 3 weight of this wait in the average, 4 '1': the order no
--         longer counted
-- RETURNS 1
-- BOUND   two keys

local left = redis.call('ZREM', KEYS[1], ARGV[1])
if (left == 1 or ARGV[4] == '1') and ARGV[2] ~= '' then
  local before = tonumber(redis.call('GET', KEYS[2]) or ARGV[2])
  local average = before + (tonumber(ARGV[2]) - before) * tonumber(ARGV[3])
  redis.call('SET', KEYS[2], string.format('%.3f', average), 'EX', 3600)
end
return 1
