-- Puts back what is missing, for the reconciler. Never removes, never disturbs what is on its way.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 tolerance in ms for jobs that were put off, then per job: queue number from 1, id,
--         delay in ms, envelope or ''
-- RETURNS one code per job: 1 inserted, 2 moved earlier (lay more than the tolerance behind the wanted due), 3 fine, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs
--
-- A job in `tries` was put off on purpose: by a snooze, a backoff, an operator. Any other job lies where it was enqueued.
-- If its row wants it now and it lies later, the call that was to move it earlier is lost. If its row wants it later, the
-- two may differ by the time that its enqueue took.

local FINE = 3
local PUT_OFF_MS, ENQUEUE_TOOK_MS = tonumber(ARGV[3]), 3000
local any_tries = redis.call('HLEN', TRIES) > 0

local function tolerance(id, delay_ms)
  if any_tries and redis.call('HEXISTS', TRIES, id) == 1 then return PUT_OFF_MS end
  return delay_ms == 0 and 0 or ENQUEUE_TOOK_MS
end

local wanted, at_item, codes = {}, {}, {}
for at = 4, #ARGV, 4 do
  local n = #codes + 1
  local q, id, delay_ms = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  local due = due_after(delay_ms)
  local lies_at = redis.call('ZSCORE', due_key(q), id) or redis.call('ZSCORE', suspects_key(q), id)
  if redis.call('HEXISTS', LEASES, id) == 1
    or (lies_at and tonumber(lies_at) <= due + tolerance(id, delay_ms)) then
    codes[n] = FINE
  else
    codes[n] = 0
    wanted[#wanted + 1] = { q, id, due, ARGV[at + 3] }
    at_item[#wanted] = n
  end
end
local inserted = insert_all(wanted)
for i = 1, #wanted do codes[at_item[i]] = inserted[i] end
return codes
