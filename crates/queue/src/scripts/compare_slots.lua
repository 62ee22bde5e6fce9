-- Compares the records of slots with each other. Every script changes them together, so a difference is a fault.
--
-- KEYS    as in lib.lua, no queue
-- ARGV    1 now, 2 wake channel (unused), 3 maximum number of jobs with slots that are compared
-- RETURNS per difference: {job, group or own name; text}; nothing if more jobs hold slots
-- BOUND   ARGV[3], at most 5,000 jobs

local slots, differences = open_slots(), {}
local HOLDS, ENDS = slot_key('slot_holds'), slot_key('slot_ends')
local OWNS, USED = slot_key('slot_owns'), slot_key('slots_used')
local most = math.min(tonumber(ARGV[3]), 5000)
local sizes = { redis.call('HLEN', HOLDS), redis.call('ZCARD', ENDS), redis.call('HLEN', OWNS), redis.call('HLEN', USED) }
if math.max(unpack(sizes)) > most then return differences end

local function differ(subject, text) differences[#differences + 1] = { subject, text } end

local used, owners = {}, {}
for _, id in ipairs(redis.call('HKEYS', HOLDS)) do
  local need = slots.find_hold(id)
  if need.group then
    used[need.group] = (used[need.group] or 0) + 1
    owners[need.own .. ' ' .. id] = true
    if not redis.call('ZSCORE', ENDS, id) then differ(id, 'holds slots that have no end') end
    local own = ' ' .. (redis.call('HGET', OWNS, need.own) or '') .. ' '
    if not string.find(own, ' ' .. id .. ' ', 1, true) then differ(id, 'holds ' .. need.own .. ', which is free') end
  else
    differ(id, 'holds slots that cannot be read')
  end
end
for _, id in ipairs(redis.call('ZRANGE', ENDS, '0', '-1')) do
  if redis.call('HEXISTS', HOLDS, id) == 0 then differ(id, 'has an end of slots that it does not hold') end
end
local reply = redis.call('HGETALL', OWNS)
for i = 1, #reply, 2 do
  for id in string.gmatch(reply[i + 1], '%S+') do
    if not owners[reply[i] .. ' ' .. id] then differ(reply[i], 'is in use by ' .. id .. ', which does not hold it') end
  end
end
reply = redis.call('HGETALL', USED)
for i = 1, #reply, 2 do
  if tonumber(reply[i + 1]) ~= (used[reply[i]] or 0) then
    differ(reply[i], 'has ' .. reply[i + 1] .. ' slots in use, and jobs hold ' .. (used[reply[i]] or 0))
  end
  used[reply[i]] = nil
end
for group, number in pairs(used) do differ(group, 'has no slots in use, and jobs hold ' .. number) end
return differences
