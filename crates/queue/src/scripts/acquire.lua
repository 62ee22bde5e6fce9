-- Takes a slot or a token under each of several limits, or under none.
--
-- KEYS    one per limit
-- ARGV    1 now in ms (empty: this server's clock), 2 holder, 3 duration of a slot in ms, 4 number of holders that have
--         ended, then these; then per limit: 'slots', maximum; or 'rate', ms between two, maximum burst
-- RETURNS 0 acquired; else busy: ms until another call is worthwhile
-- BOUND   the limits; per limit its expired slots, at most as many as were given; 500 holders that have ended
--
-- Slots are leases, so the slot of a dead holder expires. A rate is stored as the time at which it will have fully
-- recovered (GCRA), so it is one number, however many jobs pass.

-- Most holders release their slot before it expires, so another call is worthwhile sooner.
local ASK_AGAIN_MS = 500

-- The key of a recovered rate is no longer needed. It is kept a little longer.
local KEPT_MS = 10000

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + time[2] / 1000
end
local holder, lease = ARGV[2], tonumber(ARGV[3])

local ended = tonumber(ARGV[4])

local wait, take = 0, {}
local at = 5 + ended
for i, key in ipairs(KEYS) do
  if ARGV[at] == 'slots' then
    local slots = tonumber(ARGV[at + 1])
    if ended > 0 then redis.call('ZREM', key, unpack(ARGV, 5, 4 + ended)) end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    -- A slot that ends later than this clock could have set was given by a clock that was ahead. Its holder gets it
    -- back with its next renewal.
    redis.call('ZREMRANGEBYSCORE', key, string.format('(%.0f', now + 2 * lease), '+inf')
    if redis.call('ZCARD', key) >= slots and not redis.call('ZSCORE', key, holder) then
      local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
      wait = math.max(wait, math.min(ASK_AGAIN_MS, first[2] and tonumber(first[2]) - now or ASK_AGAIN_MS))
    end
    take[i] = function()
      redis.call('ZADD', key, math.ceil(now + lease), holder)
      redis.call('PEXPIRE', key, lease)
    end
    at = at + 2
  else
    local interval, burst = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local recovered = math.max(now, tonumber(redis.call('GET', key) or now)) + interval
    wait = math.max(wait, recovered - burst * interval - now)
    take[i] = function()
      redis.call('SET', key, string.format('%.3f', recovered), 'PX', math.ceil(recovered - now) + KEPT_MS)
    end
    at = at + 3
  end
end

if wait > 0 then return math.ceil(wait) end
for _, take_one in ipairs(take) do take_one() end
return 0
