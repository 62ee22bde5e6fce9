-- Slots that jobs hold, and the lines in which parked jobs wait for them; prepended after lib.lua.
--
-- A job holds one slot of the shard, one of its group and the only one of its own name, together or not at all. A free slot
-- goes to the first job in the line of the group whose turn it is: the job is due at once, its slots reserved for it. The
-- ring holds the groups that have both a waiting job and a free slot, so no call looks through groups that have not.
--
-- The keys of all this, and of queues that a script was not called for, are put together here and not among KEYS: the
-- number of groups has no bound, and a producer needs no right to them. They all carry the shard's hash tag.

-- A reservation is for a job that is due: a worker takes it within milliseconds, or none is there to. Suspects apart, for which
-- a process must first hold nothing: theirs lasts as long as their work may.
local RESERVED_MS = 2000
-- Reservations lost in a row after which a job gives its place up. A queue that no worker serves would keep its slots else.
local MOST_LAPSES = 2
-- Per call: slots handed over, slots that have ended, jobs that stop to wait for an own name.
local MOST_HANDED, MOST_ENDED, MOST_JOINING = 500, 100, 10

-- Ends are counted from `now_up`: no slot ends before its holder must have, by a holder's clock that counts from the moment at
-- which it asked.
local RESERVED, IN_LINE = '-', '-'

local function slot_key(name) return string.sub(LEASES, 1, -1 - #'leases') .. name end

-- The one thing that a script asks which may have nothing to do with slots.
local function any_slots() return redis.call('EXISTS', slot_key('slot_ends'), slot_key('slot_ring')) > 0 end

-- Made only where slots are at stake: queues without them pay for nothing.
local function open_slots()
  local PARKED, SLOT_ENDS, SLOT_RING = slot_key('parked'), slot_key('slot_ends'), slot_key('slot_ring')
  local HOLDS, OWNS, USED = slot_key('slot_holds'), slot_key('slot_owns'), slot_key('slots_used')
  local LIMITS, NUMBERS = slot_key('slot_limits'), slot_key('slot_numbers')
  local slots = {}

  local function line_key(group) return slot_key('slot_line:') .. group end
  local function wait_key(own) return slot_key('slot_wait:') .. own end
  local function queue_due_key(queue) return slot_key('due:') .. queue end
  local function queue_suspects_key(queue) return slot_key('suspects:') .. queue end
  local function reserved_key(queue) return slot_key('slot_reserved:') .. queue end
  local function queue_parked_key(queue) return slot_key('parked:') .. queue end

  -- `last` is the holder, or RESERVED, of a job with slots; of a parked job the own name it waits for, or IN_LINE.
  local function parse_need(text)
    local queue, group, own, hold, number, since, lapses, last =
      string.match(text, '^(%S+) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
    return { queue = queue, group = group, own = own, hold = tonumber(hold), number = tonumber(number),
      since = tonumber(since), lapses = tonumber(lapses), last = last }
  end

  local function need_text(need, last)
    return need.queue .. ' ' .. need.group .. ' ' .. need.own .. ' ' .. whole(need.hold) .. ' ' .. whole(need.number)
      .. ' ' .. whole(need.since) .. ' ' .. whole(need.lapses) .. ' ' .. last
  end

  local function read_need(key, id)
    local text = redis.call('HGET', key, id)
    return text and parse_need(text)
  end

  function slots.new_need(queue, group, own, hold)
    return { queue = queue, group = group, own = own, hold = tonumber(hold), number = 0, since = 0, lapses = 0 }
  end

  function slots.find_hold(id) return read_need(HOLDS, id) end
  function slots.find_parked(id) return read_need(PARKED, id) end

  -- At most `limit` jobs of a queue that have slots reserved, suspects apart, each with its due: since when it has them.
  function slots.reserved_jobs(queue, limit)
    return redis.call('ZRANGE', reserved_key(queue), '0', limit - 1, 'WITHSCORES')
  end

  -- The jobs among `ids` that have slots reserved, by their position.
  function slots.find_reservations(ids)
    local found = {}
    for i, text in ipairs(hash_values(HOLDS, ids)) do
      local need = text and parse_need(text)
      if need and need.last == RESERVED then found[i] = need end
    end
    return found
  end

  -- Slots are handed out by the epoch's own server alone: one that restarted may have lost the last second.
  local is_open
  function slots.may_hand_out()
    if is_open == nil then
      local run_id = string.match(redis.call('GET', EPOCH) or '', '^%S+')
      is_open = run_id ~= nil
        and string.find(redis.call('INFO', 'server'), 'run_id:' .. run_id, 1, true) ~= nil
    end
    return is_open
  end

  local limits = {}
  local function limit(name)
    limits[name] = limits[name] or tonumber(redis.call('HGET', LIMITS, name) or 0)
    return limits[name]
  end
  local function used(group) return tonumber(redis.call('HGET', USED, group) or 0) end

  local function shard_is_free() return redis.call('ZCARD', SLOT_ENDS) < limit('all') end
  local function group_is_free(group) return used(group) < limit('group:' .. group) end
  local function is_owned(own) return redis.call('HEXISTS', OWNS, own) == 1 end

  local function next_number(name) return redis.call('HINCRBY', NUMBERS, name, '1') end

  -- `in_use` is how many slots of the group are, `has_line` whether a job is in its line, where the caller knows it.
  function slots.refresh_ring(group, in_use, has_line)
    if has_line == nil then has_line = redis.call('EXISTS', line_key(group)) == 1 end
    if not has_line or (in_use or used(group)) >= limit('group:' .. group) then
      redis.call('ZREM', SLOT_RING, group)
    elseif not redis.call('ZSCORE', SLOT_RING, group) then
      redis.call('ZADD', SLOT_RING, next_number('turn'), group)
    end
  end

  -- The own name that keeps a job from its group's line: its own, or that of slots it holds by an earlier run.
  local function blocking_own(id, need)
    if is_owned(need.own) then return need.own end
    local held = slots.find_hold(id)
    return held and held.own
  end

  local function line_up(id, need)
    local own = blocking_own(id, need)
    redis.call('HSET', PARKED, id, need_text(need, own or IN_LINE))
    redis.call('ZADD', own and wait_key(own) or line_key(need.group), need.number, id)
    if not own then slots.refresh_ring(need.group, nil, true) end
  end

  -- Two jobs hold one own name after a restore that knew of an older one: it is free when the last of them has ended.
  local function add_owner(own, id)
    if redis.call('HSETNX', OWNS, own, id) == 0 then
      redis.call('HSET', OWNS, own, redis.call('HGET', OWNS, own) .. ' ' .. id)
    end
  end

  -- Answers whether the own name is free now.
  local function remove_owner(own, id)
    local text, owners = redis.call('HGET', OWNS, own) or '', {}
    if text ~= id then
      for owner in string.gmatch(text, '%S+') do
        if owner ~= id then owners[#owners + 1] = owner end
      end
    end
    if owners[1] then
      redis.call('HSET', OWNS, own, table.concat(owners, ' '))
      return false
    end
    redis.call('HDEL', OWNS, own)
    return true
  end

  -- Jobs that waited for this own name, which is free now, go on to the lines of their groups.
  local function join_lines(own)
    for _, id in ipairs(redis.call('ZRANGE', wait_key(own), '0', MOST_JOINING - 1)) do
      redis.call('ZREM', wait_key(own), id)
      line_up(id, slots.find_parked(id))
    end
  end

  function slots.hold(id, need, holder, ends)
    redis.call('HSET', HOLDS, id, need_text(need, holder))
    redis.call('ZADD', SLOT_ENDS, whole(ends), id)
    add_owner(need.own, id)
    slots.refresh_ring(need.group, redis.call('HINCRBY', USED, need.group, '1'))
  end

  local function end_reservation(id, need)
    if need.last == RESERVED then redis.call('ZREM', reserved_key(need.queue), id) end
  end

  function slots.free(id, need)
    end_reservation(id, need)
    redis.call('HDEL', HOLDS, id)
    redis.call('ZREM', SLOT_ENDS, id)
    local in_use = redis.call('HINCRBY', USED, need.group, '-1')
    if in_use <= 0 then redis.call('HDEL', USED, need.group) end
    if remove_owner(need.own, id) then join_lines(need.own) end
    slots.refresh_ring(need.group, in_use)
  end

  -- Frees the slots of this holder. Answers whether it had them.
  function slots.free_held(id, holder)
    local held = slots.find_hold(id)
    if not held or held.last ~= holder then return false end
    slots.free(id, held)
    return true
  end

  -- A reservation becomes slots that the holder has from now on.
  function slots.give(id, need, holder)
    end_reservation(id, need)
    redis.call('HSET', HOLDS, id, need_text(need, holder))
    redis.call('ZADD', SLOT_ENDS, now_up + need.hold, id)
  end

  -- The work of this job goes on until then: a reservation becomes its slots, too.
  function slots.extend_hold(id, need, ends)
    redis.call('ZADD', SLOT_ENDS, 'GT', ends, id)
    end_reservation(id, need)
    need.hold = math.max(need.hold, ends - now_up)
    redis.call('HSET', HOLDS, id, need_text(need, need.last == RESERVED and 'restored' or need.last))
  end

  function slots.is_free_for(id, need)
    return shard_is_free() and group_is_free(need.group) and not blocking_own(id, need)
      and redis.call('EXISTS', line_key(need.group)) == 0
  end

  -- Gives a due job the slots that it needs, or parks it, unless it has some reserved. Answers whether it is to be leased, and
  -- whether with slots from now on.
  function slots.seek(id, need, holder)
    local held = slots.find_hold(id)
    if held and held.last == RESERVED then return true, false end
    if not held and slots.is_free_for(id, need) and slots.may_hand_out() then
      slots.hold(id, need, holder, now_up + need.hold)
      return true, true
    end
    slots.park(id, need)
    return false, false
  end

  -- Whether these slots exist at all.
  function slots.are_known(group) return limit('all') > 0 and limit('group:' .. group) > 0 end

  function slots.count_reserved(queue) return redis.call('ZCARD', reserved_key(queue)) end

  function slots.park(id, need)
    need.number, need.since = next_number('number'), now
    redis.call('ZADD', queue_parked_key(need.queue), need.since, id)
    line_up(id, need)
  end

  local function unpark(id, need)
    redis.call('HDEL', PARKED, id)
    redis.call('ZREM', queue_parked_key(need.queue), id)
  end

  -- A parked job that is cancelled.
  function slots.leave_line(id)
    local need = slots.find_parked(id)
    unpark(id, need)
    redis.call('ZREM', need.last == IN_LINE and line_key(need.group) or wait_key(need.last), id)
    slots.refresh_ring(need.group)
    if not is_owned(need.own) then join_lines(need.own) end
  end

  local any_tries
  local function is_suspect(id)
    if any_tries == nil then any_tries = redis.call('EXISTS', TRIES) == 1 end
    if not any_tries then return false end
    local _, lost = parse_tries(redis.call('HGET', TRIES, id))
    return lost >= SUSPECT_AT
  end

  -- Set by a script that leases jobs: takes a job over that is handed its slots, in place of a reservation. Answers whether it does.
  slots.take_over = nil

  local function reserve(id, need)
    unpark(id, need)
    if is_suspect(id) then
      slots.hold(id, need, RESERVED, now_up + math.max(need.hold, RESERVED_MS))
      redis.call('ZADD', queue_suspects_key(need.queue), now, id)
      redis.call('PUBLISH', CHANNEL, need.queue)
      return
    end
    if slots.take_over and slots.take_over(id, need) then return end
    slots.hold(id, need, RESERVED, now_up + RESERVED_MS)
    redis.call('ZADD', reserved_key(need.queue), now, id)
    local head = redis.call('ZRANGE', queue_due_key(need.queue), '0', '0', 'WITHSCORES')
    redis.call('ZADD', queue_due_key(need.queue), now, id)
    if not head[2] or now < tonumber(head[2]) then redis.call('PUBLISH', CHANNEL, need.queue) end
  end

  local function first_in_line(group, passed_over)
    for _, id in ipairs(redis.call('ZRANGE', line_key(group), '0', passed_over.count)) do
      if not passed_over[id] then return id end
    end
  end

  local function hand_out_passing(passed_over, handed)
    local set_aside = {}
    while handed < MOST_HANDED and shard_is_free() do
      local group = redis.call('ZPOPMIN', SLOT_RING)[1]
      if not group then break end
      handed = handed + 1
      local id = first_in_line(group, passed_over)
      if id then
        local need = slots.find_parked(id)
        redis.call('ZREM', line_key(group), id)
        if need and not blocking_own(id, need) then
          reserve(id, need)
        else
          -- Another job of its own name was before it.
          if need then line_up(id, need) end
          slots.refresh_ring(group)
        end
      else
        set_aside[#set_aside + 1] = group
      end
    end
    for _, group in ipairs(set_aside) do slots.refresh_ring(group) end
    return handed
  end

  -- Hands free slots over, those of `lapsed` jobs to others first.
  function slots.hand_out(lapsed)
    if redis.call('EXISTS', SLOT_RING) == 0 or not shard_is_free() or not slots.may_hand_out() then return end
    local handed = 0
    if lapsed and lapsed.count > 0 then handed = hand_out_passing(lapsed, handed) end
    hand_out_passing({ count = 0 }, handed)
  end

  local function leave_due(id, need)
    return redis.call('ZREM', queue_due_key(need.queue), id) + redis.call('ZREM', queue_suspects_key(need.queue), id) > 0
  end

  -- Slots last no longer from now than when they were given. Those that do were given by a clock ahead of this one, before a
  -- failover: they end a whole time from now, for their work may have just begun. The rest of many is for the next call.
  local function end_ahead()
    for _ = 1, MOST_ENDED do
      local id, ends = unpack(redis.call('ZRANGE', SLOT_ENDS, '-1', '-1', 'WITHSCORES'))
      if not id then return end
      local need = slots.find_hold(id)
      local lasts = need and need.last ~= RESERVED and need.hold or RESERVED_MS
      if tonumber(ends) <= now_up + math.max(lasts, need and need.hold or 0) then return end
      redis.call('ZADD', SLOT_ENDS, now_up + lasts, id)
    end
  end

  -- Ends slots whose time is over. Answers the jobs whose reservation lapsed: they wait again.
  function slots.end_expired()
    local lapsed = { count = 0 }
    end_ahead()
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', SLOT_ENDS, '-inf', now, 'LIMIT', 0, MOST_ENDED)) do
      local need = slots.find_hold(id)
      if need then slots.free(id, need) else redis.call('ZREM', SLOT_ENDS, id) end
      if need and need.last == RESERVED and leave_due(id, need) then
        need.lapses = need.lapses + 1
        if need.lapses >= MOST_LAPSES then need.number, need.lapses = next_number('number'), 0 end
        redis.call('ZADD', queue_parked_key(need.queue), need.since, id)
        line_up(id, need)
        lapsed[id], lapsed.count = true, lapsed.count + 1
      end
    end
    return lapsed
  end

  -- A due job leaves its queue otherwise than by a lease: what is reserved for it goes to the next.
  function slots.drop_reservation(id)
    local need = slots.find_hold(id)
    if need and need.last == RESERVED then
      slots.free(id, need)
      slots.hand_out()
    end
  end

  -- When the next slots end, in ms; nil without slots.
  function slots.next_end()
    local first = redis.call('ZRANGE', SLOT_ENDS, '0', '0', 'WITHSCORES')
    return first[2] and tonumber(first[2])
  end

  -- How many jobs are before this one in its line, the first `many` of them, and who holds the own name it waits for, if any.
  function slots.look_ahead(need, many)
    local is_in_line = need.last == IN_LINE
    local key, before = is_in_line and line_key(need.group) or wait_key(need.last), '(' .. whole(need.number)
    return redis.call('ZCOUNT', key, '-inf', before),
      redis.call('ZRANGEBYSCORE', key, '-inf', before, 'LIMIT', 0, many),
      not is_in_line and string.match(redis.call('HGET', OWNS, need.last) or '', '%S+') or false
  end

  function slots.count_group(group)
    local first, since = redis.call('ZRANGE', line_key(group), 0, 0)[1], -1
    if first then since = slots.find_parked(first).since end
    return { limit('group:' .. group), used(group), redis.call('ZCARD', line_key(group)), since }
  end

  function slots.count_shard() return { limit('all'), redis.call('ZCARD', SLOT_ENDS), redis.call('HLEN', PARKED) } end

  -- Answers whether the limit was another one; nothing is written if not.
  function slots.set_limit(name, most)
    if (redis.call('HGET', LIMITS, name) or '') == most then return false end
    limits[name] = nil
    if most == '' then redis.call('HDEL', LIMITS, name) else redis.call('HSET', LIMITS, name, most) end
    return true
  end

  return slots
end
