-- What may be taken while a rebuild is under way; prepended after lib.lua.
--
-- The rebuild puts jobs in by due time. Beside its marker it publishes its horizon: each job due up to it is in. A flush takes both
-- along. The key is put together here and not among KEYS: a take asks for it only where the epoch is missing.

local REBUILDING = string.sub(EPOCH, 1, -1 - #'epoch') .. 'rebuilding'

-- The marker of the rebuild under way, and its horizon once it has one.
local function read_rebuild()
  local marker, horizon = string.match(redis.call('GET', REBUILDING) or '', '^(%S+) ?(%d*)$')
  return marker, tonumber(horizon or nil)
end

-- As `Takeable` in horizon.rs: jobs due later are not taken. Nil: nothing is.
local function find_horizon()
  if redis.call('EXISTS', EPOCH) == 1 then return math.huge end
  local _, horizon = read_rebuild()
  return horizon
end
