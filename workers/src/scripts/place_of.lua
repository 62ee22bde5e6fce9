-- Where a job lies, against where its row wants it, for repair and compare; prepended after lib.lua.
--
-- ARGV    3 tolerance in ms for jobs that were put off
--
-- A job in `tries` was put off on purpose: by a snooze, a backoff, an operator. Any other job lies where it was enqueued.
-- If its row wants it now and it lies later, the call that was to move it earlier is lost. If its row wants it later, the
-- two may differ by the time that its enqueue took. A parked job runs as soon as there is a slot: it lies in time.

local PUT_OFF_MS, ENQUEUE_TOOK_MS = tonumber(ARGV[3]), 3000
local any_tries = redis.call('HLEN', TRIES) > 0

local function tolerance(id, delay_ms)
  if any_tries and redis.call('HEXISTS', TRIES, id) == 1 then return PUT_OFF_MS end
  return delay_ms == 0 and 0 or ENQUEUE_TOOK_MS
end

-- Answers when the job is wanted, whether it is leased, parked or lies in time, and its due, if it has one.
local function place_of(q, id, delay_ms)
  local due = due_after(delay_ms)
  local lies_at = tonumber(redis.call('ZSCORE', due_key(q), id) or redis.call('ZSCORE', suspects_key(q), id) or nil)
  local is_fine = redis.call('HEXISTS', LEASES, id) == 1 or (lies_at and lies_at <= due + tolerance(id, delay_ms))
    or redis.call('ZSCORE', parked_key(q), id)
  return due, is_fine, lies_at
end
