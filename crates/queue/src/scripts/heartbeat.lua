-- Records a heartbeat of one worker process, and the lateness of its jobs since the last one.
--
-- KEYS    1 workers, 2 worker_info, 3 lateness of the hour
-- ARGV    1 now in ms (empty: this server's clock), 2 process: `boot replica`, 3 `up_ms info` with its info as JSON, or
--         '' when it leaves, 4 greatest lateness in ms, then pairs: lateness bucket in ms, jobs
-- RETURNS number of processes removed because they sent no heartbeat for 60 s, by this clock
-- BOUND   200 removals; the caller's buckets, at most some 1,000

local UNSEEN_MS, PRUNINGS, KEEP_SECS = 60000, 100, 25 * 3600
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

if ARGV[3] == '' then
  redis.call('ZREM', KEYS[1], ARGV[2])
  redis.call('HDEL', KEYS[2], ARGV[2])
else
  redis.call('ZADD', KEYS[1], now, ARGV[2])
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
end

if #ARGV > 4 then
  for at = 5, #ARGV, 2 do redis.call('HINCRBY', KEYS[3], ARGV[at], ARGV[at + 1]) end
  local max = tonumber(redis.call('HGET', KEYS[3], 'max') or '-1')
  if tonumber(ARGV[4]) > max then redis.call('HSET', KEYS[3], 'max', ARGV[4]) end
  redis.call('EXPIRE', KEYS[3], KEEP_SECS)
end

-- A heartbeat later than now was written under a clock ahead of this one. Such an entry is removed; a live process
-- writes it again within seconds.
local pruned = 0
for _, range in ipairs({ { '-inf', now - UNSEEN_MS }, { now + UNSEEN_MS, '+inf' } }) do
  local unseen = redis.call('ZRANGEBYSCORE', KEYS[1], range[1], range[2], 'LIMIT', 0, PRUNINGS)
  for _, process in ipairs(unseen) do
    redis.call('ZREM', KEYS[1], process)
    redis.call('HDEL', KEYS[2], process)
  end
  pruned = pruned + #unseen
end
return pruned
