-- Ends a batch of leases, each with its outcome and its follow-ups, in one step.
--
-- KEYS    as in lib.lua, the queues of the jobs and of their follow-ups
-- ARGV    1 now, 2 wake channel, then per run of jobs that end alike: queue number from 1, token, outcome (done |
--         snooze | park | retry | spent | dead; spent is dead of a last failed try), argument (delay in ms, `group own
--         hold_ms`, or the error), number of follow-ups, number of superseded jobs, number of jobs, then their ids;
--         then per follow-up: queue number, id, delay in ms, envelope or ''; then per superseded job: queue number, id.
--         Only a run of one job has these two.
-- RETURNS {refused: {position of the job from 1, ..}; dead follow-ups: {position of the job, id, ..}}
-- BOUND   the batch; the caller sends at most 500 jobs, follow-ups and superseded jobs, or one job with all of its own;
--         500 slots handed over
--
-- A job is refused if the token is not that of the current lease, because another worker has or had the job. Then
-- nothing changes for it, and its follow-ups are not inserted. All leases end first, then all superseded jobs are
-- cancelled, then follow-ups are inserted. So a job may be its own follow-up.

-- Last byte of a lease without `again`.
local DASH = 45

-- Arguments are the main cost of a call. A job that ends like the one before it adds only its id.
local ids, runs, total = {}, {}, 0
local at, last = 3, #ARGV
while at <= last do
  local run = { q = tonumber(ARGV[at]), token = ARGV[at + 1], outcome = ARGV[at + 2], argument = ARGV[at + 3],
    follow_ups = tonumber(ARGV[at + 4]), superseded = tonumber(ARGV[at + 5]) }
  run.first = at + 7 + tonumber(ARGV[at + 6])
  for from = at + 7, run.first - 1 do
    total = total + 1
    ids[total], runs[total] = ARGV[from], run
  end
  run.last = run.first + 4 * run.follow_ups + 2 * run.superseded - 1
  at = run.last + 1
end

local leases = hash_values(LEASES, ids)
local tries = redis.call('HLEN', TRIES) > 0 and hash_values(TRIES, ids) or {}
local refused, is_refused, ended, finished = {}, {}, {}, {}
local unlease, gone, no_tries, new_tries, requeue, parks = {}, {}, {}, {}, {}, {}

for i = 1, total do
  local id, run = ids[i], runs[i]
  local lease = not ended[id] and leases[i]
  if not lease or not is_lease_of(lease, run.token) then
    is_refused[i] = true
    refused[#refused + 1] = i
  else
    ended[id] = true
    finished[#finished + 1] = id
    append(unlease, run.q, id)
    local outcome, due, again = run.outcome, nil, nil
    if outcome ~= 'done' or string.byte(lease, -1) ~= DASH then due, again = select(2, parse_lease(lease)) end
    local run_at = again
    if outcome == 'done' then
      if not again then gone[#gone + 1] = id end
      if tries[i] then no_tries[#no_tries + 1] = id end
    else
      local failed, lost = parse_tries(tries[i])
      if outcome == 'snooze' then
        run_at = earlier(due_after(run.argument), again)
        new_tries[#new_tries + 1] = id
        new_tries[#new_tries + 1] = failed > 0 and failed .. ' 0' or PUT_OFF
      elseif outcome == 'park' then
        run_at = nil
        parks[#parks + 1] = i
        -- The job did not reach its work, so this end says nothing about its earlier lost deliveries.
        if tries[i] and failed == 0 and lost == 0 then no_tries[#no_tries + 1] = id end
      elseif outcome == 'retry' then
        run_at = earlier(due_after(run.argument), again)
        new_tries[#new_tries + 1] = id
        new_tries[#new_tries + 1] = (failed + 1) .. ' 0'
      else
        run_at = nil
        if outcome == 'spent' then failed = failed + 1 end
        bury(run.q, id, run.argument, failed, lost, due)
      end
    end
    if run_at then append(requeue, run.q, run_at, id) end
  end
end

for q, list in pairs(unlease) do in_chunks('ZREM', leased_key(q), list) end
in_chunks('HDEL', LEASES, finished)
if #gone > 0 and redis.call('HLEN', JOBS) > 0 then in_chunks('HDEL', JOBS, gone) end
in_chunks('HDEL', TRIES, no_tries)
in_chunks('HSET', TRIES, new_tries)
requeue_all(requeue)

if #parks > 0 then
  local slots = open_slots()
  for _, i in ipairs(parks) do
    local group, own, hold = string.match(runs[i].argument, '^(%S+) (%S+) (%d+)$')
    slots.park(ids[i], slots.new_need(queue_name(runs[i].q), group, own, hold))
  end
  slots.hand_out()
end

local superseded, follow_ups, parents = {}, {}, {}
for i = 1, total do
  if not is_refused[i] then
    local run = runs[i]
    local behind = run.first + 4 * run.follow_ups
    for from = run.first, behind - 1, 4 do
      follow_ups[#follow_ups + 1] = { tonumber(ARGV[from]), ARGV[from + 1], due_after(ARGV[from + 2]), ARGV[from + 3] }
      parents[#follow_ups] = i
    end
    for from = behind, run.last, 2 do superseded[#superseded + 1] = { tonumber(ARGV[from]), ARGV[from + 1] } end
  end
end
cancel_all(superseded)
local left_dead = {}
if #follow_ups > 0 then
  for n, code in ipairs(insert_all(follow_ups)) do
    if code == IS_DEAD then
      left_dead[#left_dead + 1] = parents[n]
      left_dead[#left_dead + 1] = follow_ups[n][2]
    end
  end
end
return { refused, left_dead }
