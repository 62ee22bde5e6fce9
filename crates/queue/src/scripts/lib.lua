-- Shared functions of the job scripts; prepended to each of them.
--
-- KEYS    1 leases, 2 jobs, 3 tries, 4 dead, 5 paused, 6 epoch, 7 suspect_turn, then per queue: due, leased, dead,
--         suspects, parked; in a cluster one more, which never exists
-- ARGV    1 now in ms (empty: this server's clock), 2 wake channel
--
-- Members are moved with one command per queue, not one per job, because calls into Redis are the main cost of a
-- script.

local LEASES, JOBS, TRIES, DEAD, PAUSED, EPOCH, TURN = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local CHANNEL = ARGV[2]

-- Lua's unpack() fails above some 8,000 values.
local CHUNK = 1000

-- A sleeping worker takes again after 1 s at the latest, so only jobs due sooner need to wake it.
local WAKE_WITHIN_MS = 2000

local QUEUES = math.floor((#KEYS - 7) / 5)

local function due_key(q) return KEYS[5 * q + 3] end
local function leased_key(q) return KEYS[5 * q + 4] end
local function dead_key(q) return KEYS[5 * q + 5] end
local function suspects_key(q) return KEYS[5 * q + 6] end
local function parked_key(q) return KEYS[5 * q + 7] end
local function queue_name(q) return string.match(due_key(q), ':due:(.*)$') end

-- `now` is rounded down, to compare due times with it. `now_up` is rounded up, to add delays to it. So no job runs
-- early, not even by a fraction of a millisecond.
local now, now_up
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
  now_up = now
else
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  now_up = now + (time[2] % 1000 > 0 and 1 or 0)
end

-- tostring() would write numbers above 10^14 with an exponent.
local function whole(number) return string.format('%.0f', number) end

local function due_after(delay_ms)
  delay_ms = tonumber(delay_ms)
  if delay_ms == 0 then return now end
  return now_up + delay_ms
end

-- Calls `command` once per CHUNK of `list`.
local function in_chunks(command, key, list)
  for from = 1, #list, CHUNK do
    redis.call(command, key, unpack(list, from, math.min(from + CHUNK - 1, #list)))
  end
end

-- Returns the hash values of `ids`, in their order; false for a missing field.
local function hash_values(key, ids)
  local values = {}
  for from = 1, #ids, CHUNK do
    local part = redis.call('HMGET', key, unpack(ids, from, math.min(from + CHUNK - 1, #ids)))
    for i = 1, #part do values[from + i - 1] = part[i] end
  end
  return values
end

-- Appends one or two values to the list of queue `q` in `lists`.
local function append(lists, q, a, b)
  local list = lists[q]
  if not list then
    list = {}
    lists[q] = list
  end
  list[#list + 1] = a
  if b then list[#list + 1] = b end
end

local function parse_lease(text)
  local token, due, again = string.match(text, '^(%S+) (%S+) (%S+)$')
  return token, tonumber(due), tonumber(again)
end

-- Returns whether a lease has this token, without parsing it. Most callers need nothing else.
local function is_lease_of(lease, token) return string.find(lease, token .. ' ', 1, true) == 1 end

-- Deliveries lost in a row that make a job a suspect. Same as `SUSPECT_AT` in take.rs.
local SUSPECT_AT = 2

-- Value in `tries` of a job that was delayed on purpose, without a failed run or a lost delivery.
local PUT_OFF = '0 0'

local function parse_tries(text)
  if not text then return 0, 0 end
  local failed, lost = string.match(text, '^(%d+) (%d+)$')
  return tonumber(failed), tonumber(lost)
end

local function earlier(a, b)
  if b and b < a then return b end
  return a
end

local function wake(q) redis.call('PUBLISH', CHANNEL, queue_name(q)) end

local function head_due(q)
  local head = redis.call('ZRANGE', due_key(q), '0', '0', 'WITHSCORES')
  return head[2] and tonumber(head[2]) or math.huge
end

-- Wakes the workers only for a new first job, because a backlog must not cause a storm of messages.
local function wake_if_new_head(q, due, head_before)
  if due < head_before and due < now + WAKE_WITHIN_MS then wake(q) end
end

-- Puts leased jobs back into their queues; `by_queue` has lists of due, id, ..
local function requeue_all(by_queue)
  for q, list in pairs(by_queue) do
    local head_before, earliest = head_due(q), math.huge
    for i = 1, #list, 2 do earliest = math.min(earliest, list[i]) end
    in_chunks('ZADD', due_key(q), list)
    wake_if_new_head(q, earliest, head_before)
  end
end

-- Returns the record of a dead job. It is built as text, so that the envelope stays byte for byte as the producer wrote
-- it. The envelope is the text between the first `,"payload":` (inside a JSON string its quotes would be escaped) and
-- the last character.
local function dead_record(q, error, failed, lost, due, died, envelope)
  return '{"queue":' .. cjson.encode(queue_name(q)) .. ',"error":' .. cjson.encode(error)
    .. ',"failed":' .. failed .. ',"lost":' .. lost .. ',"due_ms":' .. whole(due) .. ',"died_ms":' .. whole(died)
    .. ',"payload":' .. (envelope or 'null') .. '}'
end

local function bury(q, id, error, failed, lost, due)
  local envelope = redis.call('HGET', JOBS, id)
  redis.call('ZADD', dead_key(q), now, id)
  redis.call('HSET', DEAD, id, dead_record(q, error, failed, lost, due, now, envelope))
  redis.call('HDEL', JOBS, id)
  redis.call('HDEL', TRIES, id)
end
