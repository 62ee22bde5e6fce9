-- Inserts jobs, for enqueue and for the follow-ups of settle; prepended after lib.lua.
--
-- Rule per state: absent -> insert; due or suspect -> keep the earlier due time; leased -> record `again`, the earliest
-- requested due time; parked or dead -> no change.

local INSERTED, MOVED, KEPT, AGAIN, IS_DEAD = 1, 2, 3, 4, 5

-- Inserts `items`, a list of {q, id, due, envelope or ''}. Returns one code per item.
local function insert_all(items)
  local ids = {}
  for i = 1, #items do ids[i] = items[i][2] end
  local leases = hash_values(LEASES, ids)
  local dead = redis.call('HLEN', DEAD) > 0 and hash_values(DEAD, ids) or {}

  local heads, earliest, any_suspects, any_parked = {}, {}, {}, {}
  local codes = {}
  -- Jobs of one batch are often due together, so the text of the last due time is reused.
  local last_due, due_text
  for i = 1, #items do
    local q, id, due, envelope = items[i][1], items[i][2], items[i][3], items[i][4]
    if dead[i] then
      codes[i] = IS_DEAD
    elseif leases[i] then
      -- Read again, because the same id may be twice in one batch.
      local token, lease_due, again = parse_lease(redis.call('HGET', LEASES, id))
      if not again or due < again then
        redis.call('HSET', LEASES, id, token .. ' ' .. whole(lease_due) .. ' ' .. whole(due))
      end
      codes[i] = AGAIN
    else
      if not heads[q] then
        heads[q], earliest[q] = head_due(q), math.huge
        any_suspects[q] = redis.call('ZCARD', suspects_key(q)) > 0
        any_parked[q] = redis.call('ZCARD', parked_key(q)) > 0
      end
      local is_suspect = any_suspects[q] and redis.call('ZSCORE', suspects_key(q), id)
      if due ~= last_due then last_due, due_text = due, whole(due) end
      local key = is_suspect and suspects_key(q) or due_key(q)
      if any_parked[q] and redis.call('ZSCORE', parked_key(q), id) then
        codes[i] = KEPT
      elseif redis.call('ZADD', key, 'NX', due_text, id) == 1 then
        if envelope ~= '' then redis.call('HSET', JOBS, id, envelope) end
        codes[i] = INSERTED
      elseif redis.call('ZADD', key, 'LT', 'CH', due_text, id) == 1 then
        codes[i] = MOVED
      else
        codes[i] = KEPT
      end
      if codes[i] ~= KEPT then earliest[q] = math.min(earliest[q], due) end
    end
  end

  for q, due in pairs(earliest) do wake_if_new_head(q, due, heads[q]) end
  return codes
end
