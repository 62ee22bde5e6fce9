-- Returns one page of a queue's jobs in one state, by score.
--
-- KEYS    as in lib.lua, the one queue
-- ARGV    1 now, 2 wake channel (unused), 3 state (due | suspect | leased | parked | dead), 4 first rank, 5 maximum
--         number
-- RETURNS per job: {id, score, failed, lost, error or nil}; for dead jobs the last three come from their record
-- BOUND   the page; at most 1,000 jobs

local key = ({ due = due_key, suspect = suspects_key, leased = leased_key, parked = parked_key,
  dead = dead_key })[ARGV[3]](1)
local from, many = tonumber(ARGV[4]), math.min(tonumber(ARGV[5]), 1000)
if many == 0 then return {} end
local reply = redis.call('ZRANGE', key, from, from + many - 1, 'WITHSCORES')
local ids = {}
for i = 1, #reply, 2 do ids[#ids + 1] = reply[i] end
local tries = hash_values(TRIES, ids)
local records = ARGV[3] == 'dead' and hash_values(DEAD, ids) or {}
local answer = {}
for i, id in ipairs(ids) do
  local failed, lost = parse_tries(tries[i])
  local error = false
  if records[i] then
    -- The payload is cut off, because it may be what could not be read.
    local record = cjson.decode(string.sub(records[i], 1, string.find(records[i], ',"payload":', 1, true) - 1) .. '}')
    failed, lost, error = record.failed, record.lost, record.error
  end
  answer[i] = { id, reply[2 * i], failed, lost, error }
end
return answer
