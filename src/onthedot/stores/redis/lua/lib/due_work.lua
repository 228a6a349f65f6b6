-- What happens by itself: deaths, refills of lanes, alarms. Each a batch a call; true: there may be more.
local function reap_overdue()
  local done = 0
  for _, session in ipairs(call('ZRANGEBYSCORE', SESSION_LEASES, '-inf', now, 'LIMIT', 0, 100)) do
    if done >= BATCH then return true end
    done = done + 1 + reap_session(session, false, BATCH - done)
  end
  return done > 100
end

local function reopen() -- a star's limit has changed: its lanes are looked at, some a call
  local cursor = call('HGET', SEQUENCES, 'reopen')
  if not cursor then return false end
  local answer = call('SSCAN', PARKED_LANES, cursor, 'COUNT', BATCH)
  for _, name in ipairs(answer[2]) do set_refill(lane(name), now) end
  if answer[1] == '0' then
    call('HDEL', SEQUENCES, 'reopen')
    return false
  end
  call('HSET', SEQUENCES, 'reopen', answer[1])
  return true
end

local function refill_lanes()
  local more, done = declared() and reopen(), 0
  while done < BATCH do
    local name = call('ZRANGEBYSCORE', LANE_REFILLS, '-inf', now + SLACK, 'LIMIT', 0, 1)[1]
    if not name then return more end
    call('ZREM', LANE_REFILLS, name)
    local l = lane(name)
    l.refill, l.changed = nil, true
    done = done + 1 + admit(name)
  end
  return true
end

local function ring() -- alarms whose moment has come, the first of them: they are set no more
  local rung = {}
  while #rung < BATCH do
    local name = call('ZRANGE', ALARMS, 0, 0)[1]
    if not name or name * WIDTH > now then break end
    local key = BUCKET .. name
    local found = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, BATCH - #rung)
    if #found > 0 then call('ZREMRANGEBYRANK', key, 0, #found - 1) end
    for _, seq in ipairs(found) do rung[#rung + 1] = seq end
    if call('EXISTS', key) == 1 then break end
    call('ZREM', ALARMS, name)
  end
  return rung
end

local function promote()
  flush()
  local rung = ring()
  if #rung == 0 then return false end
  local asked, past = read_fields(TASK, rung), read_fields(HISTORY, rung)
  for i, seq in ipairs(rung) do
    local r = to_record(seq, asked[i], past[i])
    local over = expiry(r)
    if over and over <= now then
      r.state = find_place(r) or 'scheduled'
      leave(r, r.state)
      queue_chore(r, 'expired')
    else
      count(r.source, 'scheduled', -1)
      arrive(r)
    end
  end
  return #rung == BATCH
end
