-- Reports what repair would do, without doing it.
--
-- KEYS    as in lib.lua
-- ARGV    as for repair; the envelopes are ignored
-- RETURNS one code per job: 1 absent, 2 due more than the tolerance after the wanted time, 3 fine, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs

local items, ids, codes = wanted_items(), {}, {}
for i, item in ipairs(items) do ids[i] = item[2] end
local is_fine, lies_at = find_places(items)
local dead = redis.call('HLEN', DEAD) > 0 and hash_values(DEAD, ids) or {}
for i = 1, #items do
  if is_fine[i] then
    codes[i] = 3
  elseif dead[i] then
    codes[i] = 5
  else
    codes[i] = lies_at[i] and 2 or 1
  end
end
return codes
