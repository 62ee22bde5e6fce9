-- Compares the due times of jobs with those that their rows want, for repair, rebuild and compare; prepended after
-- lib.lua.
--
-- ARGV    3 tolerance in ms for jobs that were delayed on purpose
--
-- A job in `tries` was delayed on purpose, by a snooze, a backoff or an operator. Any other job has the due time of its
-- enqueue. If its row wants it now and it is due later, the call that should have moved it earlier was lost. If its row
-- wants it later, the two times may differ by the duration of the enqueue. A parked job is in time, because it runs as
-- soon as it has its slots.
--
-- A few commands look up all jobs of a batch, because a rebuild compares half a million jobs.

local PUT_OFF_MS, ENQUEUE_TOOK_MS = tonumber(ARGV[3]), 3000

-- Returns the scores of the items in the sets that `key_of` names, by position.
local function find_scores(items, key_of)
  local ids, positions, scores = {}, {}, {}
  for i, item in ipairs(items) do
    append(ids, item[1], item[2])
    append(positions, item[1], i)
  end
  for q, list in pairs(ids) do
    if redis.call('EXISTS', key_of(q)) == 1 then
      for from = 1, #list, CHUNK do
        local part = redis.call('ZMSCORE', key_of(q), unpack(list, from, math.min(from + CHUNK - 1, #list)))
        for i = 1, #part do
          if part[i] then scores[positions[q][from + i - 1]] = tonumber(part[i]) end
        end
      end
    end
  end
  return scores
end

-- Looks up `items`, a list of {q, id, due, envelope or '', is_due = wanted now}. Returns two lists by position: whether
-- the job is leased, parked or due in time; and its due time, if it has one.
local function find_places(items)
  local ids = {}
  for i, item in ipairs(items) do ids[i] = item[2] end
  local leases = hash_values(LEASES, ids)
  local tries = redis.call('HLEN', TRIES) > 0 and hash_values(TRIES, ids) or {}
  local due, suspects, parked = find_scores(items, due_key), find_scores(items, suspects_key), find_scores(items, parked_key)
  local is_fine, lies_at = {}, {}
  for i, item in ipairs(items) do
    local tolerance = item.is_due and 0 or ENQUEUE_TOOK_MS
    if tries[i] then tolerance = PUT_OFF_MS end
    local in_time = math.max(item[3], now) + tolerance
    lies_at[i] = due[i] or suspects[i]
    is_fine[i] = (leases[i] or parked[i] or (lies_at[i] and lies_at[i] <= in_time)) and true or false
  end
  return is_fine, lies_at
end

-- Returns the items in ARGV from 4 on, each wanted after a delay.
local function wanted_items()
  local items = {}
  for at = 4, #ARGV, 4 do
    local delay = tonumber(ARGV[at + 2])
    items[#items + 1] = { tonumber(ARGV[at]), ARGV[at + 1], due_after(delay), ARGV[at + 3], is_due = delay == 0 }
  end
  return items
end
