-- Slots that jobs hold, and the lines in which parked jobs wait for them; prepended after lib.lua.
--
-- A job holds one slot of the shard, one of its group and the only one of its own name: all three or none. A free slot
-- goes to the first job in the line of the group whose turn it is: the job is due at once, with its slots reserved. The
-- ring has only groups with both a waiting job and a free slot, so no call searches the other groups.
--
-- The keys for slots, and those of queues that a script was not called for, are built here and are not in KEYS: the
-- number of groups is unbounded, and a producer needs no rights to these keys. All of them have the shard's hash tag.

-- Duration of a reservation. A due job with a reservation is taken within milliseconds, or no worker is there. For a
-- suspect, the process must first finish its other jobs, so a suspect's reservation lasts at least as long as its
-- slots.
local RESERVED_MS = 2000
-- Expired reservations in a row after which a job goes to the end of its line. Otherwise a queue without workers would
-- keep its slots.
local MOST_LAPSES = 2
-- Limits per call: slots handed over, slots that have ended, jobs that join their lines when an own name is free.
local MOST_HANDED, MOST_ENDED, MOST_JOINING = 500, 100, 10

-- Ends are computed from `now_up`. A holder counts from the time of its request, so its work must end before its slots
-- do.
local RESERVED, IN_LINE = '-', '-'

local function slot_key(name) return string.sub(LEASES, 1, -1 - #'leases') .. name end

-- Returns whether the shard has any slots in use or waiting groups. Scripts that may not involve slots check only this.
local function any_slots() return redis.call('EXISTS', slot_key('slot_ends'), slot_key('slot_ring')) > 0 end

-- Creates the functions for slots. Called only when slots are involved, so queues without slots do not pay for it.
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

  -- `last` of a job with slots is its holder, or RESERVED. `last` of a parked job is the own name it waits for, or
  -- IN_LINE.
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

  -- Returns at most `limit` jobs of a queue that have slots reserved, without suspects, each with its due time, which
  -- is the time of the reservation.
  function slots.reserved_jobs(queue, limit)
    return redis.call('ZRANGE', reserved_key(queue), '0', limit - 1, 'WITHSCORES')
  end

  -- Returns the reservations of the jobs among `ids` that have one, by position.
  function slots.find_reservations(ids)
    local found = {}
    for i, text in ipairs(hash_values(HOLDS, ids)) do
      local need = text and parse_need(text)
      if need and need.last == RESERVED then found[i] = need end
    end
    return found
  end

  -- Returns whether slots may be handed out. Only the server that the epoch names does so, because a restarted one may
  -- have lost the last second.
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

  -- Adds a group to the ring or removes it. `in_use` is the group's number of slots in use, `has_line` whether a job is
  -- in its line; nil if the caller does not know it.
  function slots.refresh_ring(group, in_use, has_line)
    if has_line == nil then has_line = redis.call('EXISTS', line_key(group)) == 1 end
    if not has_line or (in_use or used(group)) >= limit('group:' .. group) then
      redis.call('ZREM', SLOT_RING, group)
    elseif not redis.call('ZSCORE', SLOT_RING, group) then
      redis.call('ZADD', SLOT_RING, next_number('turn'), group)
    end
  end

  -- Returns the own name that keeps a job out of its group's line: the job's own name if it is in use, or that of slots
  -- from an earlier run.
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

  -- Two jobs have the same own name after a restore that found a second holder. The name is free when both have ended.
  local function add_owner(own, id)
    if redis.call('HSETNX', OWNS, own, id) == 0 then
      redis.call('HSET', OWNS, own, redis.call('HGET', OWNS, own) .. ' ' .. id)
    end
  end

  -- Removes a holder of an own name. Returns whether the name is free now.
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

  -- Moves jobs that waited for this own name, which is free now, to the lines of their groups.
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

  -- Frees the slots of this holder. Returns whether it had them.
  function slots.free_held(id, holder)
    local held = slots.find_hold(id)
    if not held or held.last ~= holder then return false end
    slots.free(id, held)
    return true
  end

  -- Turns a reservation into slots of the holder; their time starts now.
  function slots.give(id, need, holder)
    end_reservation(id, need)
    redis.call('HSET', HOLDS, id, need_text(need, holder))
    redis.call('ZADD', SLOT_ENDS, now_up + need.hold, id)
  end

  -- Extends slots, because the job's work runs until `ends`. A reservation becomes slots, too.
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

  -- Gives a due job the slots that it needs, or parks it. A job with a reservation keeps the reserved slots. Returns
  -- whether to lease the job, and whether this call gave it its slots.
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

  -- Returns whether the shard and this group have slots at all.
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

  -- Removes a cancelled job from its line.
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

  -- Set by a script that leases jobs. Takes over a job that is handed its slots, instead of a reservation. Returns
  -- whether it did.
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
          -- A job before it has the same own name, or the job still holds slots of an earlier run.
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

  -- Hands free slots over. The slots of `lapsed` jobs go to other jobs first.
  function slots.hand_out(lapsed)
    if redis.call('EXISTS', SLOT_RING) == 0 or not shard_is_free() or not slots.may_hand_out() then return end
    local handed = 0
    if lapsed and lapsed.count > 0 then handed = hand_out_passing(lapsed, handed) end
    hand_out_passing({ count = 0 }, handed)
  end

  local function leave_due(id, need)
    return redis.call('ZREM', queue_due_key(need.queue), id) + redis.call('ZREM', queue_suspects_key(need.queue), id) > 0
  end

  -- Shortens slots that end later than this clock could have set. A clock that was ahead gave them before a failover.
  -- They now end a full duration from now, because their work may have just started. Any others wait for the next call.
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

  -- Ends slots whose time is over. Returns the jobs whose reservation expired; they wait in line again.
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

  -- Frees the reservation of a job that leaves its queue without a lease, and hands the slots to the next job.
  function slots.drop_reservation(id)
    local need = slots.find_hold(id)
    if need and need.last == RESERVED then
      slots.free(id, need)
      slots.hand_out()
    end
  end

  -- Returns the end of the next slots, in ms; nil without slots.
  function slots.next_end()
    local first = redis.call('ZRANGE', SLOT_ENDS, '0', '0', 'WITHSCORES')
    return first[2] and tonumber(first[2])
  end

  -- Returns the number of jobs before this one in its line, the first `many` of them, and the holder of the own name
  -- that it waits for, if any.
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

  -- Sets a limit. Returns whether it changed; an unchanged limit is not written.
  function slots.set_limit(name, most)
    if (redis.call('HGET', LIMITS, name) or '') == most then return false end
    limits[name] = nil
    if most == '' then redis.call('HDEL', LIMITS, name) else redis.call('HSET', LIMITS, name, most) end
    return true
  end

  return slots
end
