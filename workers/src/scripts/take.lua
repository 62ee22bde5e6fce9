-- Rescues expired leases, then leases due jobs: one call per process, over all its queues.
--
-- KEYS    as in lib.lua, the queues of this process
-- ARGV    1 now, 2 wake channel, 3 lease in ms, 4 token, 5 deliveries that may be lost before a job is dead,
--         6 deliveries lost that make a job a suspect, 7 mode: normal | alone | quiesce, then per queue: free permits
-- RETURNS {0} without an epoch; else {1, now, next due or -1, suspects: 0 none passed over, 1 some, 2 some and it is this
--         process that may quiesce for them, newly dead: {queue number, id, error, ..},
--         jobs: {queue number, id, due, failed, lost, envelope or nil, ..}}
--         next due: the earliest over the queues that still have free permits, but for suspects passed over
-- BOUND   100 rescues in all; per queue `permits` jobs (at most 1,000) and 100 suspects passed over; in mode quiesce 1,000
--         jobs looked at per queue
--
-- A suspect is a job whose last deliveries were lost: it may be what kills its worker. It is leased only in mode alone,
-- by a process that holds nothing else, and then nothing else is leased with it: poison kills no neighbours. A process
-- that holds nothing may take one at once. For a fleet that is never idle, one process per queue is told to take nothing
-- more until its hand is empty; if it dies, another takes its place after 30 s. If all did, one poisoned job would stall
-- the fleet for as long as its slowest handler. Meanwhile it asks in mode quiesce, which leases nothing, whether there
-- still are suspects.

if redis.call('EXISTS', EPOCH) == 0 then return { 0 } end

local LEASE_MS, TOKEN = tonumber(ARGV[3]), ARGV[4]
local MAX_LOST, SUSPECT_AT = tonumber(ARGV[5]), tonumber(ARGV[6])
local ALONE, QUIESCING = ARGV[7] == 'alone', ARGV[7] == 'quiesce'
local RESCUES, PASSED_OVER, MOST = 100, 100, 1000
local QUIESCE_MS, QUIESCE_KEPT_SECS = 30000, 60
local FIRST = 8
local queues = #ARGV - FIRST + 1

local dead, jobs = {}, {}

local rescues = RESCUES
for q = 1, queues do
  if rescues == 0 then break end
  local expired = redis.call('ZRANGEBYSCORE', leased_key(q), '-inf', now, 'LIMIT', 0, rescues)
  rescues = rescues - #expired
  for _, id in ipairs(expired) do
    local lease = redis.call('HGET', LEASES, id)
    local _, due, again = parse_lease(lease or '- ' .. whole(now) .. ' -')
    local failed, lost = parse_tries(redis.call('HGET', TRIES, id))
    lost = lost + 1
    redis.call('ZREM', leased_key(q), id)
    redis.call('HDEL', LEASES, id)
    if lost >= MAX_LOST then
      local error = 'lost ' .. lost .. ' deliveries: its worker died or lost Redis each time'
      bury(q, id, error, failed, lost, due)
      dead[#dead + 1] = q
      dead[#dead + 1] = id
      dead[#dead + 1] = error
    else
      redis.call('ZADD', due_key(q), earlier(due, again), id)
      redis.call('HSET', TRIES, id, failed .. ' ' .. lost)
    end
  end
end

local any_tries = redis.call('HLEN', TRIES) > 0

-- Due jobs of queue q from rank `offset`, at most `limit`, as a list of {id, due, failed, lost}.
local function due_jobs(q, offset, limit)
  local found = {}
  local reply = redis.call('ZRANGEBYSCORE', due_key(q), '-inf', now, 'WITHSCORES', 'LIMIT', offset, limit)
  local ids = {}
  for i = 1, #reply, 2 do ids[#ids + 1] = reply[i] end
  local tries = any_tries and hash_values(TRIES, ids) or {}
  for i = 1, #ids do
    local failed, lost = parse_tries(tries[i])
    found[i] = { ids[i], reply[2 * i], failed, lost }
  end
  return found
end

-- The earliest due that is yet to come.
local function due_later(q)
  local later = redis.call('ZRANGEBYSCORE', due_key(q), '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return later[2] and tonumber(later[2]) or math.huge
end

local function lease_jobs(q, found)
  if #found == 0 then return end
  local ids, leased, leases = {}, {}, {}
  for i, job in ipairs(found) do
    ids[i] = job[1]
    leased[2 * i - 1] = now + LEASE_MS
    leased[2 * i] = job[1]
    leases[2 * i - 1] = job[1]
    leases[2 * i] = TOKEN .. ' ' .. job[2] .. ' -'
  end
  in_chunks('ZREM', due_key(q), ids)
  in_chunks('ZADD', leased_key(q), leased)
  in_chunks('HSET', LEASES, leases)
  local envelopes = hash_values(JOBS, ids)
  for i, job in ipairs(found) do
    local n = #jobs
    jobs[n + 1], jobs[n + 2], jobs[n + 3], jobs[n + 4], jobs[n + 5] = q, job[1], job[2], job[3], job[4]
    jobs[n + 6] = envelopes[i] or false
  end
end

local any_paused = redis.call('SCARD', PAUSED) > 0
local wanted, permits = {}, {}
for q = 1, queues do
  wanted[q] = tonumber(ARGV[FIRST + q - 1])
  permits[q] = QUIESCING and MOST or math.min(wanted[q], MOST)
  if any_paused and redis.call('SISMEMBER', PAUSED, queue_name(q)) == 1 then permits[q] = 0 end
end

local suspect_leased = false
if ALONE and any_tries then
  for q = 1, queues do
    if permits[q] > 0 and not suspect_leased then
      for _, job in ipairs(due_jobs(q, 0, permits[q] + PASSED_OVER)) do
        if job[4] >= SUSPECT_AT then
          lease_jobs(q, { job })
          suspect_leased = true
          break
        end
      end
    end
  end
end

-- Whether this process is the one to quiesce for the suspects of queue q.
local function may_quiesce(q)
  local boot = string.match(TOKEN, '^(.*):') or TOKEN
  local other, until_ms = string.match(redis.call('HGET', QUIESCE, queue_name(q)) or '', '^(.*) (%d+)$')
  if other and other ~= boot and tonumber(until_ms) > now then return false end
  redis.call('HSET', QUIESCE, queue_name(q), boot .. ' ' .. whole(now + QUIESCE_MS))
  redis.call('EXPIRE', QUIESCE, QUIESCE_KEPT_SECS)
  return true
end

local next_due, suspects = -1, 0
for q = 1, queues do
  if suspect_leased then break end
  if QUIESCING then
    for _, job in ipairs(due_jobs(q, 0, permits[q])) do
      if job[4] >= SUSPECT_AT then
        suspects = math.max(suspects, may_quiesce(q) and 2 or 1)
        break
      end
    end
  elseif permits[q] > 0 then
    local found = due_jobs(q, 0, permits[q])
    local fit, read = {}, #found
    for _, job in ipairs(found) do
      if job[4] < SUSPECT_AT then fit[#fit + 1] = job end
    end
    local passed_over = #fit < read
    if passed_over then
      for _, job in ipairs(due_jobs(q, read, PASSED_OVER)) do
        if #fit == permits[q] then break end
        if job[4] < SUSPECT_AT then fit[#fit + 1] = job end
      end
      suspects = math.max(suspects, may_quiesce(q) and 2 or 1)
    end
    lease_jobs(q, fit)
    if #fit < wanted[q] then
      local head = passed_over and #fit < permits[q] and due_later(q) or head_due(q)
      if head < math.huge and (next_due < 0 or head < next_due) then next_due = head end
    end
  end
end

return { 1, now, next_due, suspects, dead, jobs }
