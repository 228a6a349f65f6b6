-- Lanes: running and admitted tasks, parked tasks, and the time at which a rate gives capacity again.
-- uses: limits tallies
local enter, queue_chore -- places.lua defines them

local function set_refill(l, time)
  if not l.refill or time < l.refill then
    l.refill, l.changed = time, true
    call('ZADD', LANE_REFILLS, time, l.name)
  end
end

local function has_capacity(l, price) -- may one more task be admitted? If only time helps, the refill is set
  local limit = effective(l.name)
  if not limit then return true end
  if limit.paused or (limit.cap and l.running + l.admitted >= limit.cap) then return false end
  if not limit.rate then return true end
  price = math.min(price, limit.burst) -- a task that was added under a larger burst costs a full bucket
  local missing = price - (level(l, limit) - l.reserved)
  if missing <= limit.rate * SLACK / 1000 then return true end
  if l.reserved + price <= limit.burst then set_refill(l, now + missing / limit.rate * 1000) end
  return false -- without a refill: the admitted tasks must start first
end

local function may_start(l, price) -- may an admitted task start? Limits can have changed since it was admitted
  local limit = effective(l.name)
  if not limit then return true end
  if limit.paused or (limit.cap and l.running >= limit.cap) then return false end
  if not limit.rate then return true end
  price = math.min(price, limit.burst)
  if price - level(l, limit) > limit.rate * SLACK / 1000 then
    set_refill(l, now) -- its reserved tokens may be enough for the first parked task
    return false
  end
  spend(l, limit, price)
  return true
end

local function add_admitted(l, r, by)
  l.admitted, l.changed = l.admitted + by, true
  l.reserved = l.admitted == 0 and 0 or l.reserved + by * cost(r)
end

local function add_running(l, by) l.running, l.changed = l.running + by, true end

local function unpark(name, seq)
  call('ZREM', PARKED .. name, seq)
  call('ZREM', P .. 'parked_order', seq)
end

local function admit_one(r) -- its alarm stays
  count(r.source, 'parked', -1)
  unpark(r.lane, r.seq)
  enter(r, 'ready')
  flush()
end

local function admit(name) -- parked tasks of a lane, by rank, while it has capacity
  flush()
  local l = lane(name)
  for done = 0, BATCH - 1 do
    local seq = call('ZRANGE', PARKED .. name, 0, 0)[1]
    if not seq then
      call('SREM', PARKED_LANES, name)
      return done
    end
    local r = load(seq)
    if not r then
      unpark(name, seq) -- its record is gone
    elseif r.policy.undecodable then
      count(r.source, 'parked', -1)
      unpark(name, seq)
      r.state = 'parked'
      queue_chore(r, 'undecodable')
    elseif has_capacity(l, cost(r)) then
      admit_one(r)
    else
      return done
    end
  end
  set_refill(l, now)
  return BATCH
end

local function overtake(r) -- a task that has just been parked may pass those that need more tokens
  flush()
  if call('ZSCORE', PARKED .. r.lane, r.seq) and has_capacity(lane(r.lane), cost(r)) then admit_one(r) end
end

local function check_parked_lanes() -- after a change of a star's limit; true: there may be more
  local cursor = call('HGET', SEQUENCES, 'lane_check')
  if not cursor then return false end
  local answer = call('SSCAN', PARKED_LANES, cursor, 'COUNT', BATCH)
  for _, name in ipairs(answer[2]) do set_refill(lane(name), now) end
  if answer[1] == '0' then
    call('HDEL', SEQUENCES, 'lane_check')
    return false
  end
  call('HSET', SEQUENCES, 'lane_check', answer[1])
  return true
end

local function refill_lanes() -- true: there may be more
  local more, done = has_limits() and check_parked_lanes(), 0
  while done < BATCH do
    local name, refill_at = unpack(call('ZRANGE', LANE_REFILLS, 0, 0, 'WITHSCORES'))
    if not name then return more end
    local l = lane(name)
    if tonumber(refill_at) > now + SLACK and not is_ahead(l) then return more end
    call('ZREM', LANE_REFILLS, name)
    l.refill, l.changed = nil, true
    done = done + 1 + admit(name)
  end
  return true
end

local function forget_lane(l) -- a bucket stays until it is full: without a record it would count as full
  local limit = effective(l.name)
  if l.tokens and limit and limit.rate and level(l, limit) < limit.burst then
    call('ZADD', P .. 'idle_lanes', now + (limit.burst - l.tokens) / limit.rate * 1000, l.name)
    return false
  end
  if l.stored then call('DEL', LANE .. l.name) end
  if l.refill then call('ZREM', LANE_REFILLS, l.name) end
  return true
end

closing[#closing + 1] = function()
  for name, l in pairs(lanes) do
    local empty = l.running <= 0 and l.admitted <= 0 and call('EXISTS', PARKED .. name) == 0
    if l.changed and not (empty and forget_lane(l)) then
      call('HSET', LANE .. name, 'running', l.running, 'admitted', l.admitted, 'reserved', l.reserved,
        'tokens', l.tokens or '', 'at', l.at or '', 'refill', l.refill or '')
    end
  end
end
