-- Deletes dead jobs.
--
-- KEYS    as in lib.lua, the queues to search
-- ARGV    1 now, 2 wake channel (unused), then the ids
-- RETURNS one code per id: 1 discarded, 2 not dead: nothing changes
-- BOUND   the ids, each constant per queue; the caller sends at most 500

local DISCARDED, NOT_DEAD = 1, 2
local codes = {}
for n = 3, #ARGV do
  local q, place = place_of(ARGV[n])
  if place == IS_DEAD then
    codes[#codes + 1] = DISCARDED
    redis.call('ZREM', dead_key(q), ARGV[n])
    redis.call('HDEL', DEAD, ARGV[n])
  else
    codes[#codes + 1] = NOT_DEAD
  end
end
return codes
