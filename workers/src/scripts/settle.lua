-- Ends a batch of leases, each with its outcome and its follow-ups, all at once.
--
-- KEYS    as in lib.lua, the queues of the jobs and of their follow-ups
-- ARGV    1 now, 2 wake channel, then per job: queue number from 1, id, token, outcome (done | snooze | park | retry | spent |
--         dead; spent is dead of a last failed try), argument (delay in ms, `group own hold_ms`, or the error), number of follow-ups,
--         number of superseded jobs, then per follow-up: queue number, id, delay in ms, envelope or ''; then per superseded job:
--         queue number, id
-- RETURNS {codes: 1 settled, 2 refused, per job; follow-ups left dead: {position of the job, id, ..}}
-- BOUND   the batch; the caller sends at most 500 jobs, follow-ups and superseded jobs, or one job with all of its own; 500 slots
--         handed over
--
-- Refused: the token is not that of the present lease, so another worker has the job or had it. Nothing changes then, and
-- its follow-ups are not inserted. All leases end, then all superseded jobs are cancelled, and then follow-ups are inserted: a job
-- may follow itself.

local SETTLED, REFUSED = 1, 2

local items, ids = {}, {}
local at = 3
while at <= #ARGV do
  local item = { q = tonumber(ARGV[at]), id = ARGV[at + 1], token = ARGV[at + 2], outcome = ARGV[at + 3],
    argument = ARGV[at + 4], follow_ups = tonumber(ARGV[at + 5]), superseded = tonumber(ARGV[at + 6]), first = at + 7 }
  items[#items + 1] = item
  ids[#items] = item.id
  item.last = item.first + 4 * item.follow_ups + 2 * item.superseded - 1
  at = item.last + 1
end

local leases = hash_values(LEASES, ids)
local tries = redis.call('HLEN', TRIES) > 0 and hash_values(TRIES, ids) or {}
local codes, ended = {}, {}
local unlease, gone, no_tries, new_tries, requeue, parks = {}, {}, {}, {}, {}, {}

for i, item in ipairs(items) do
  local token, due, again
  if leases[i] and not ended[item.id] then token, due, again = parse_lease(leases[i]) end
  if token ~= item.token then
    codes[i] = REFUSED
  else
    codes[i] = SETTLED
    ended[item.id] = true
    append(unlease, item.q, item.id)
    local failed, lost = parse_tries(tries[i])
    local run_at = again
    if item.outcome == 'snooze' then
      run_at = earlier(due_after(item.argument), again)
      new_tries[#new_tries + 1] = item.id
      new_tries[#new_tries + 1] = failed > 0 and failed .. ' 0' or PUT_OFF
    elseif item.outcome == 'park' then
      run_at = nil
      parks[#parks + 1] = item
      -- It did not get to its work: that it ended says nothing of what became of its earlier deliveries.
      if tries[i] and failed == 0 and lost == 0 then no_tries[#no_tries + 1] = item.id end
    elseif item.outcome == 'retry' then
      run_at = earlier(due_after(item.argument), again)
      new_tries[#new_tries + 1] = item.id
      new_tries[#new_tries + 1] = (failed + 1) .. ' 0'
    elseif item.outcome == 'dead' or item.outcome == 'spent' then
      run_at = nil
      if item.outcome == 'spent' then failed = failed + 1 end
      bury(item.q, item.id, item.argument, failed, lost, due)
    else
      if not again then gone[#gone + 1] = item.id end
      if tries[i] then no_tries[#no_tries + 1] = item.id end
    end
    if run_at then append(requeue, item.q, run_at, item.id) end
  end
end

local finished = {}
for id in pairs(ended) do finished[#finished + 1] = id end
for q, list in pairs(unlease) do in_chunks('ZREM', leased_key(q), list) end
in_chunks('HDEL', LEASES, finished)
in_chunks('HDEL', JOBS, gone)
in_chunks('HDEL', TRIES, no_tries)
in_chunks('HSET', TRIES, new_tries)
requeue_all(requeue)

if #parks > 0 then
  local slots = open_slots()
  for _, item in ipairs(parks) do
    local group, own, hold = string.match(item.argument, '^(%S+) (%S+) (%d+)$')
    slots.park(item.id, slots.new_need(queue_name(item.q), group, own, hold))
  end
  slots.hand_out()
end

local superseded, follow_ups, parents = {}, {}, {}
for i, item in ipairs(items) do
  if codes[i] == SETTLED then
    local behind = item.first + 4 * item.follow_ups
    for from = item.first, behind - 1, 4 do
      follow_ups[#follow_ups + 1] = { tonumber(ARGV[from]), ARGV[from + 1], due_after(ARGV[from + 2]), ARGV[from + 3] }
      parents[#follow_ups] = i
    end
    for from = behind, item.last, 2 do superseded[#superseded + 1] = { tonumber(ARGV[from]), ARGV[from + 1] } end
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
return { codes, left_dead }
