-- Records the result of a call in a circuit breaker, or reads its state.
--
-- KEYS    1 the breaker
-- ARGV    1 now in ms (empty: this server's clock), 2 action: 'read', 'ok', 'fail', 'trip' (fail, and open at once) or
--         'pause' (open for a time, not counted as a failure), 3 reason, 4 failures in a row that open it, 5 ms it
--         stays open the first time, doubled each time it opens again, 6 maximum; for 'pause' and 'trip': 5 ms
-- RETURNS ms it is still open, failures in a row, times opened in a row, ms since it closed (-1: it did not), reason
-- BOUND   one hash
--
-- When its time is over, an open breaker is half open: callers send few calls, one failure opens it again, one success
-- closes it.

-- A breaker without reported calls is deleted after this time, and so closed.
local KEPT_MS = 3600000

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + time[2] / 1000
end
local key, what, why = KEYS[1], ARGV[2], ARGV[3]

local state = redis.call('HMGET', key, 'failures', 'opens', 'until', 'closed', 'why', 'at')
local failures, opens = tonumber(state[1] or 0), tonumber(state[2] or 0)
local open_until, closed = tonumber(state[3] or 0), tonumber(state[4] or -1)
local known = state[1]

-- The clock has stepped back since the last call, so stored times are too far ahead by the same amount.
local stepped_back = math.max(0, tonumber(state[6] or now) - now)
if stepped_back > 0 then
  open_until = open_until - stepped_back
  if closed >= 0 then closed = closed - stepped_back end
  redis.call('HSET', key, 'until', string.format('%.0f', open_until), 'closed', string.format('%.0f', closed),
    'at', string.format('%.0f', now))
end

if what == 'read' or (what == 'ok' and not known) then
  why = state[5] or ''
else
  if what == 'ok' then
    -- A success counts only after the open time. An earlier one belongs to a call made before the breaker opened.
    if opens > 0 and now >= open_until then
      opens, closed = 0, now
    end
    failures = 0
    why = state[5] or ''
  elseif what == 'pause' then
    open_until = math.max(open_until, now + tonumber(ARGV[5]))
    -- After the pause, calls increase slowly, as after a failure.
    closed = open_until
  elseif now >= open_until or what == 'trip' then
    failures = failures + 1
    if what == 'trip' or opens > 0 or failures >= tonumber(ARGV[4]) then
      local longest = tonumber(ARGV[6]) or tonumber(ARGV[5])
      open_until = math.max(open_until, now + math.min(longest, tonumber(ARGV[5]) * 2 ^ math.min(opens, 20)))
      opens, failures, closed = opens + 1, 0, -1
    end
  end
  redis.call('HSET', key, 'failures', failures, 'opens', opens, 'until', string.format('%.0f', open_until),
    'closed', string.format('%.0f', closed), 'why', why, 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', key, KEPT_MS)
end

local since = -1
if closed >= 0 then since = math.max(0, math.floor(now - closed)) end
return { math.max(0, math.ceil(open_until - now)), failures, opens, since, why }
