-- Cancels jobs that are never wanted again, for enqueue and for settle; prepended after slots.lua.
--
-- Rule per state: due or suspect -> remove; leased, parked or dead -> no change, because the job ends by itself or an
-- operator decides. Slots reserved for a removed job go to the next in line.

-- Cancels `items`, a list of {q, id}.
local function cancel_all(items)
  local any_suspects, removed = {}, {}
  for _, item in ipairs(items) do
    local q, id = item[1], item[2]
    local count = redis.call('ZREM', due_key(q), id)
    if count == 0 then
      if any_suspects[q] == nil then any_suspects[q] = redis.call('ZCARD', suspects_key(q)) > 0 end
      if any_suspects[q] then count = redis.call('ZREM', suspects_key(q), id) end
    end
    if count == 1 then removed[#removed + 1] = id end
  end
  if #removed == 0 then return end
  in_chunks('HDEL', JOBS, removed)
  in_chunks('HDEL', TRIES, removed)
  if not any_slots() then return end
  local slots = open_slots()
  for _, id in ipairs(removed) do slots.drop_reservation(id) end
end
