-- Takes a place for an order in an area.
--
-- KEYS    1 marker that the set is complete, 2 set of waiting orders, 3 busy: 'ms:threshold'
-- ARGV    1 order, 2 ms it counts, 3 threshold (-1: unlimited), 4 maximum with bypass (-1: no bypass), 5 cooldown in ms,
--         6 low-water mark, 7 '1': take the place even if the area is full
-- RETURNS nothing while the marker is missing; else 1 taken, 2 taken by bypass or 0 full; the count before; busy since, in
--         ms (0: not busy)
-- BOUND   the orders that expired since the last call

if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
local count = redis.call('ZCARD', KEYS[2])
local since = 0
local busy = redis.call('GET', KEYS[3])
if busy then
  -- A busy mark of another threshold does not apply to this one.
  local ms, at = string.match(busy, '(%d+):(-?%d+)')
  if at == ARGV[3] then since = tonumber(ms) end
end
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return { 1, count - 1, since } end
local threshold, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local answer = 1
if threshold >= 0 then
  if count >= threshold then
    if since == 0 then
      since = now
      redis.call('SET', KEYS[3], string.format('%d:%s', since, ARGV[3]), 'PX', 86400000)
    end
  elseif since > 0 and now >= since + tonumber(ARGV[5]) and count < tonumber(ARGV[6]) then
    since = 0
    redis.call('DEL', KEYS[3])
  end
  if count >= threshold or since > 0 then
    answer = 0
    if count < most then answer = 2 end
  end
end
if answer > 0 or ARGV[7] == '1' then redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1]) end
return { answer, count, since }
