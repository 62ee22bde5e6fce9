-- Frees slots whose work has ended, rescues expired leases, then leases due jobs: one call per process, for all its
-- queues.
--
-- KEYS    as in lib.lua, the queues of this process
-- ARGV    1 now, 2 wake channel, 3 lease in ms, 4 token, 5 lost deliveries after which a job is dead, 6 mode: normal |
--         rest | quiesce | alone, 7 1 to look for expired leases, else 0, 8 number of jobs whose slots are freed, then
--         per such job: id, holder; then per queue: free permits
-- RETURNS {0} without epoch and horizon; else {1, now, next due or -1, 1 if suspects are due, 1 if this process has the
--         turn to run them, 1 if more leases may have expired than one call rescues, newly dead: {queue number, id,
--         error, ..}, jobs in groups: {queue number, {id, ..}, {due, ..}, of those that have tries {{position from 1,
--         failed, lost}, ..}, {envelope or nil, ..} or {} if no job has one, ..}, of those that come with their slots:
--         {id, duration in ms, group, own name}, 1 if a rebuild is in progress}
--         next due: the earliest due time of the queues that still have free permits, without suspects; or the end of
--         the first slots; or, for jobs beyond the horizon, the time of the next check
-- BOUND   1,000 rescues in all; per queue 1,000 leases cut, `permits` jobs leased or parked (at most 1,000); the caller
--         sends at most 500 jobs whose slots are freed; 100 slots ended, 500 handed over
--
-- A due job whose envelope names the slots that it needs is leased with them, or parked. So no worker handles it before
-- it has them. Slots that are freed here go to the first job in line. The same call leases that job as far as the
-- permits allow, so no other process is woken for it.
--
-- A suspect is a job whose last deliveries were lost: it may be the cause of its workers' deaths. Suspects are in their
-- own set, so they hide no other job. One process at a time has the turn to run them, for the duration of a lease
-- unless it renews the turn. All others continue with normal jobs. The process with the turn leases no more jobs until
-- it has none (quiesce), and then one suspect alone (alone), so a harmful job takes no other job with it. `rest` gives
-- the turn back, so that normal jobs and other processes have their share. `normal` asks for the turn when suspects are
-- due.

-- Slots of ended work are freed, whether or not jobs may be taken.
local ENDED = tonumber(ARGV[8])
local slots = ENDED > 0 and open_slots()
for at = 9, 8 + 2 * ENDED, 2 do slots.free_held(ARGV[at], ARGV[at + 1]) end

local HORIZON = find_horizon()
if not HORIZON then return { 0 } end

-- Latest due time that is leased.
local LATEST = math.min(now, HORIZON)
-- Delay until the next check for a due job beyond the horizon. A rebuild usually advances within that time.
local HORIZON_LOOK_MS = 50

local LEASE_MS, TOKEN = tonumber(ARGV[3]), ARGV[4]
-- Text, because Redis would otherwise convert the number for each job.
local LEASE_END = whole(now + LEASE_MS)
local MAX_LOST, MODE = tonumber(ARGV[5]), ARGV[6]
local BOOT = string.match(TOKEN, '^(.*):') or TOKEN
local RESCUES, MOST = 1000, 1000
local TURN_KEPT_SECS = 60
-- Same limit as `SlotNeed`.
local LONGEST_HOLD_MS = 600000
-- Looking for expired leases and slots costs about as much as the rest of the script, even if there are none. A few
-- takes per second are enough.
local LOOKS_FOR_EXPIRED = ARGV[7] == '1'
local FIRST = 9 + 2 * ENDED
local queues = #ARGV - FIRST + 1

-- Latest possible end of a lease by this clock. A later one was given before a failover, by a clock that was ahead.
local FURTHEST_MS = now + 2 * LEASE_MS

local dead, jobs, handed = {}, {}, {}

local any_paused = redis.call('SCARD', PAUSED) > 0
local open, wanted, permits, numbers = {}, {}, {}, {}
for q = 1, queues do
  numbers[queue_name(q)] = q
  open[q] = not (any_paused and redis.call('SISMEMBER', PAUSED, queue_name(q)) == 1)
  wanted[q] = tonumber(ARGV[FIRST + q - 1])
  permits[q] = open[q] and math.min(wanted[q], MOST) or 0
end

-- Ends expired leases of queue q. Each job is due again as before, or dead.
local function rescue(q, ids)
  local leases, tries = hash_values(LEASES, ids), hash_values(TRIES, ids)
  local due_again, suspects, new_tries = {}, {}, {}
  for i, id in ipairs(ids) do
    local _, due, again = parse_lease(leases[i] or '- ' .. whole(now) .. ' -')
    local failed, lost = parse_tries(tries[i])
    lost = lost + 1
    if lost >= MAX_LOST then
      local error = 'lost ' .. lost .. ' deliveries: its worker died or lost Redis each time'
      bury(q, id, error, failed, lost, due)
      dead[#dead + 1] = q
      dead[#dead + 1] = id
      dead[#dead + 1] = error
    else
      local list = lost >= SUSPECT_AT and suspects or due_again
      -- The job was due when it was leased, even if this clock shows an earlier time.
      list[#list + 1] = math.min(earlier(due, again), now)
      list[#list + 1] = id
      new_tries[#new_tries + 1] = id
      new_tries[#new_tries + 1] = failed .. ' ' .. lost
    end
  end
  in_chunks('ZREM', leased_key(q), ids)
  in_chunks('HDEL', LEASES, ids)
  in_chunks('ZADD', due_key(q), due_again)
  in_chunks('ZADD', suspects_key(q), suspects)
  in_chunks('HSET', TRIES, new_tries)
  -- Wakes other processes for the jobs that this call does not lease: those above its permits, or all of them in the
  -- modes for suspects.
  local leases_none = MODE == 'quiesce' or MODE == 'alone'
  if #due_again > 0 and (leases_none or #due_again / 2 > permits[q]) then wake(q) end
end

local rescues = RESCUES
for q = 1, LOOKS_FOR_EXPIRED and queues or 0 do
  -- These leases are cut to end as usual. A live worker renews its leases long before they end; those of a dead worker
  -- expire.
  local ahead = redis.call('ZRANGEBYSCORE', leased_key(q), '(' .. whole(FURTHEST_MS), '+inf', 'LIMIT', 0, RESCUES)
  for _, id in ipairs(ahead) do redis.call('ZADD', leased_key(q), now + LEASE_MS, id) end
  if rescues > 0 then
    local expired = redis.call('ZRANGEBYSCORE', leased_key(q), '-inf', now, 'LIMIT', 0, rescues)
    rescues = rescues - #expired
    if #expired > 0 then rescue(q, expired) end
  end
end

local any_tries = redis.call('HLEN', TRIES) > 0
local any_envelopes = redis.call('HLEN', JOBS) > 0

-- Jobs of each queue that this call hands slots to and leases. Jobs with older reservations come first.
local taken_over, rooms = {}, {}
local function take_over(id, need)
  local q = numbers[need.queue]
  if not q or permits[q] == 0 or (MODE ~= 'normal' and MODE ~= 'rest') then return false end
  rooms[q] = rooms[q] or permits[q] - slots.count_reserved(need.queue)
  if rooms[q] <= 0 then return false end
  rooms[q] = rooms[q] - 1
  slots.hold(id, need, TOKEN, now_up + need.hold)
  handed[#handed + 1] = { id, need.hold, need.group, need.own }
  append(taken_over, q, id)
  return true
end

-- Slots that have ended go to the next job in line, which this call may lease.
if not slots and any_slots() then slots = open_slots() end
if slots then
  slots.take_over = take_over
  local first_end = slots.next_end()
  local has_ended = LOOKS_FOR_EXPIRED or (first_end and first_end <= now)
  slots.hand_out(has_ended and slots.end_expired() or nil)
end

-- Turns the reservations of these jobs into slots. Without the epoch the reservations are freed.
local function give_slots(ids)
  local reservations = slots.find_reservations(ids)
  for i, id in ipairs(ids) do
    local need = reservations[i]
    if need and slots.may_hand_out() then
      slots.give(id, need, TOKEN)
      handed[#handed + 1] = { id, need.hold, need.group, need.own }
    elseif need then
      slots.free(id, need)
    end
  end
end

-- Leases jobs of queue q that were removed from their set. `tries` and `envelopes` have the values of TRIES and JOBS by
-- position, if any. `granted` means that the jobs already have their slots.
local function lease_jobs(q, ids, dues, tries, envelopes, granted)
  if #ids == 0 then return end
  local leased, leases, tried = {}, {}, {}
  local last_due, lease
  for i = 1, #ids do
    local id, due = ids[i], dues[i]
    -- Jobs with the same due time have the same lease text.
    if due ~= last_due then last_due, lease = due, TOKEN .. ' ' .. due .. ' -' end
    leased[2 * i - 1], leased[2 * i] = LEASE_END, id
    leases[2 * i - 1], leases[2 * i] = id, lease
    if tries[i] then tried[#tried + 1] = { i, parse_tries(tries[i]) } end
  end
  in_chunks('ZADD', leased_key(q), leased)
  in_chunks('HSET', LEASES, leases)
  if slots and not granted then give_slots(ids) end
  local n = #jobs
  jobs[n + 1], jobs[n + 2], jobs[n + 3], jobs[n + 4], jobs[n + 5] = q, ids, dues, tried, envelopes
end

local function find_tries(ids) return any_tries and hash_values(TRIES, ids) or {} end
local function find_envelopes(ids) return any_envelopes and hash_values(JOBS, ids) or {} end

-- Returns the queue and the job of the suspect that has been due for longest; nil if there is none. Each suspect has an
-- entry in `tries`.
local function first_suspect()
  local first_q, first
  for q = 1, any_tries and queues or 0 do
    if open[q] then
      local head = redis.call('ZRANGE', suspects_key(q), 0, 0, 'WITHSCORES')
      if head[2] and tonumber(head[2]) <= LATEST and (not first or tonumber(head[2]) < tonumber(first[2])) then
        first_q, first = q, head
      end
    end
  end
  return first_q, first
end

-- Takes or renews the turn. Returns false while another process has it.
local function take_turn()
  local boot, until_ms = unpack(redis.call('HMGET', TURN, 'boot', 'until'))
  until_ms = tonumber(until_ms or 0)
  if boot and boot ~= BOOT and until_ms > now and until_ms <= FURTHEST_MS then return false end
  redis.call('HSET', TURN, 'boot', BOOT, 'until', whole(now + LEASE_MS))
  redis.call('EXPIRE', TURN, TURN_KEPT_SECS)
  return true
end

local function give_turn_back()
  if redis.call('HGET', TURN, 'boot') == BOOT then redis.call('DEL', TURN) end
end

local suspect_q, suspect = first_suspect()
local has_turn = false
if MODE == 'quiesce' or (suspect and MODE ~= 'rest') then
  has_turn = take_turn()
end
local leases_normal = MODE ~= 'quiesce'
if MODE == 'rest' or (MODE == 'alone' and not has_turn) then
  give_turn_back()
elseif MODE == 'alone' then
  redis.call('ZREM', suspects_key(suspect_q), suspect[1])
  local ids = { suspect[1] }
  lease_jobs(suspect_q, ids, { suspect[2] }, find_tries(ids), find_envelopes(ids))
  leases_normal = false
end

-- Returns the slots that a job of queue q needs according to its envelope, if any. Any producer may write an envelope.
-- An envelope with invalid slots is ignored: the job is leased without slots, and its worker asks for them.
local function stated_need(q, envelope)
  local group, own, hold = string.match(envelope, '^{"v":1,"slots":"([%w_.:-]+) ([%w_.:-]+) (%d+)"')
  if not group or own == '-' or tonumber(hold) < 1 or tonumber(hold) > LONGEST_HOLD_MS then return nil end
  slots = slots or open_slots()
  if not slots.are_known(group) then return nil end
  return slots.new_need(queue_name(q), group, own, hold)
end

-- Removes at most `limit` due jobs from queue q, and leases those that are not suspects and do not lack slots. Returns
-- their number. A suspect among them was handed back by a drain, and is moved to the suspects.
local function lease_due(q, limit)
  local count = math.min(limit, redis.call('ZCOUNT', due_key(q), '-inf', LATEST))
  if count == 0 then return 0 end
  local ids, dues = {}, {}
  local popped = redis.call('ZPOPMIN', due_key(q), count)
  for i = 1, count do ids[i], dues[i] = popped[2 * i - 1], popped[2 * i] end
  if not any_tries and not any_envelopes then
    lease_jobs(q, ids, dues, {}, {})
    return count
  end
  local tries, envelopes = find_tries(ids), find_envelopes(ids)
  local fit, fit_dues, fit_tries, fit_envelopes, no_tries = {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local _, lost = parse_tries(tries[i])
    if lost >= SUSPECT_AT then
      redis.call('ZADD', suspects_key(q), 'LT', dues[i], id)
    else
      local need, is_leased, has_slots = envelopes[i] and stated_need(q, envelopes[i]), true, false
      if need then is_leased, has_slots = slots.seek(id, need, TOKEN) end
      if has_slots then handed[#handed + 1] = { id, need.hold, need.group, need.own } end
      if is_leased then
        local n = #fit + 1
        fit[n], fit_dues[n], fit_tries[n], fit_envelopes[n] = id, dues[i], tries[i], envelopes[i]
      else
        -- The job now waits for its slots, so its earlier delay no longer matters.
        if tries[i] == PUT_OFF then no_tries[#no_tries + 1] = id end
      end
    end
  end
  in_chunks('HDEL', TRIES, no_tries)
  lease_jobs(q, fit, fit_dues, fit_tries, fit_envelopes)
  return #fit
end

-- Leases jobs with reserved slots, before jobs that have been due for longer. Otherwise a slot would stay unused behind
-- a backlog until its reservation expires. Returns the number of leased jobs.
local function lease_reserved(q, limit)
  local reserved = slots and slots.reserved_jobs(queue_name(q), limit) or {}
  local ids, dues = {}, {}
  for i = 1, #reserved / 2 do ids[i], dues[i] = reserved[2 * i - 1], reserved[2 * i] end
  in_chunks('ZREM', due_key(q), ids)
  lease_jobs(q, ids, dues, find_tries(ids), find_envelopes(ids))
  return #ids
end

local function lease_taken_over(q)
  local ids, dues = taken_over[q] or {}, {}
  for i = 1, #ids do dues[i] = whole(now) end
  lease_jobs(q, ids, dues, find_tries(ids), find_envelopes(ids), true)
  return #ids
end

local next_due = -1
for q = 1, leases_normal and queues or 0 do
  if permits[q] > 0 then
    local leased, head = #(taken_over[q] or {}), head_due(q)
    -- Jobs with reserved slots are due, unless the clock was set back.
    if head <= now or LOOKS_FOR_EXPIRED then
      if leased < permits[q] then leased = leased + lease_reserved(q, permits[q] - leased) end
      lease_taken_over(q)
      if leased < permits[q] then leased = leased + lease_due(q, permits[q] - leased) end
      head = nil
    else
      lease_taken_over(q)
    end
    if leased < wanted[q] then
      head = head or head_due(q)
      if head > HORIZON and head <= now then head = now + HORIZON_LOOK_MS end
      if head < math.huge and (next_due < 0 or head < next_due) then next_due = head end
    end
  end
end

local slots_end = slots and slots.next_end()
if slots_end and (next_due < 0 or slots_end < next_due) then next_due = slots_end end

return { 1, now, next_due, suspect and 1 or 0, has_turn and 1 or 0, rescues == 0 and 1 or 0, dead, jobs, handed,
  HORIZON < math.huge and 1 or 0 }
