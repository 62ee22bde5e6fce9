-- Returns one page of a queue's dead jobs, the longest dead first, after a place in that order.
--
-- KEYS    as in lib.lua, the one queue
-- ARGV    1 now, 2 wake channel (unused), 3 minimum age in ms, 4 maximum number, 5 time of death and 6 id of the last
--         job of the page before, or '' and '' for the first page
-- RETURNS {1 if there may be more, per job: {id, time of death, record or nil}}
-- BOUND   500 jobs, and the logarithm of those that died in the same millisecond
--
-- The place is a time and an id, not a rank. So no job is skipped when others are requeued or discarded between two
-- pages.

local many = math.min(tonumber(ARGV[4]), 500)
local died_by = now - tonumber(ARGV[3])

-- Compares byte by byte, as sorted sets order members. Lua's own `<` uses the server's locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local from = 0
if ARGV[5] ~= '' then
  from = redis.call('ZCOUNT', dead_key(1), '-inf', '(' .. ARGV[5])
  local past = redis.call('ZCOUNT', dead_key(1), '-inf', ARGV[5])
  while from < past do
    local middle = math.floor((from + past) / 2)
    if before(ARGV[6], redis.call('ZRANGE', dead_key(1), middle, middle)[1]) then
      past = middle
    else
      from = middle + 1
    end
  end
end

if many == 0 then return { 0 } end
local reply = redis.call('ZRANGE', dead_key(1), from, from + many - 1, 'WITHSCORES')
local ids, answer = {}, { #reply == 2 * many and 1 or 0 }
for i = 1, #reply, 2 do ids[#ids + 1] = reply[i] end
local records = hash_values(DEAD, ids)
for i, id in ipairs(ids) do
  if tonumber(reply[2 * i]) > died_by then
    answer[1] = 0
    break
  end
  answer[#answer + 1] = { id, reply[2 * i], records[i] }
end
return answer
