-- Finds the place of one job, for operators' actions on single jobs; prepended after lib.lua.

local IS_DUE, IS_LEASED, IS_DEAD, IS_ABSENT, IS_PARKED = 1, 2, 3, 4, 5

-- Returns the number of the job's queue, one of the states above, and the key of the set if the job is due.
local function place_of(id)
  for q = 1, QUEUES do
    if redis.call('ZSCORE', due_key(q), id) then return q, IS_DUE, due_key(q) end
    if redis.call('ZSCORE', suspects_key(q), id) then return q, IS_DUE, suspects_key(q) end
    if redis.call('ZSCORE', leased_key(q), id) then return q, IS_LEASED end
    if redis.call('ZSCORE', parked_key(q), id) then return q, IS_PARKED end
    if redis.call('ZSCORE', dead_key(q), id) then return q, IS_DEAD end
  end
  return nil, IS_ABSENT
end
