-- Jobs that may be taken during a rebuild; prepended after lib.lua.
--
-- The rebuild inserts jobs by due time. Next to its marker it publishes its horizon: all jobs due up to that time are
-- inserted. A flush removes both. The key is built here and is not in KEYS, because a take needs it only if the epoch
-- is missing.

local REBUILDING = string.sub(EPOCH, 1, -1 - #'epoch') .. 'rebuilding'

-- Returns the marker of the current rebuild, and its horizon if it has one.
local function read_rebuild()
  local marker, horizon = string.match(redis.call('GET', REBUILDING) or '', '^(%S+) ?(%d*)$')
  return marker, tonumber(horizon or nil)
end

-- Returns the latest due time that may be taken; nil if no job may be taken. Same as `Takeable` in horizon.rs.
local function find_horizon()
  if redis.call('EXISTS', EPOCH) == 1 then return math.huge end
  local _, horizon = read_rebuild()
  return horizon
end
