-- Lanes: how many run, how many were let into ready, and when time alone opens one for the next.
local function set_refill(l, when)
  if not l.refill or when < l.refill then
    l.refill, l.changed = when, true
    call('ZADD', LANE_REFILLS, when, l.name)
  end
end

local function has_capacity(l, price) -- may one more be let into ready? If only time can tell, the refill is set
  local limit = effective(l.name)
  if not limit then return true end
  if limit.paused or (limit.cap and l.running + l.admitted >= limit.cap) then return false end
  if not limit.rate then return true end
  price = math.min(price, limit.burst) -- one that was added under a larger burst waits for a full bucket
  local missing = price - (level(l, limit) - l.reserved)
  if missing <= limit.rate * SLACK / 1000 then return true end
  if l.reserved + price <= limit.burst then set_refill(l, now + missing / limit.rate * 1000) end
  return false -- else the admitted ones must start first
end

local function may_start(l, price) -- may an admitted one start? Limits can have changed since it was admitted
  local limit = effective(l.name)
  if not limit then return true end
  if limit.paused or (limit.cap and l.running >= limit.cap) then return false end
  if not limit.rate then return true end
  price = math.min(price, limit.burst)
  if price - level(l, limit) > limit.rate * SLACK / 1000 then
    set_refill(l, now) -- what was pledged to it may be enough for the first of those that are parked
    return false
  end
  l.tokens, l.changed = l.tokens - price, true
  return true
end

local function admitted(l, r, by)
  l.admitted, l.changed = l.admitted + by, true
  l.reserved = l.admitted == 0 and 0 or l.reserved + by * cost(r)
end

local function running(l, by) l.running, l.changed = l.running + by, true end

local function forget(l) -- a half-full bucket stays until it is full: forgetting it would fill it
  local limit = effective(l.name)
  if l.tokens and limit and limit.rate and level(l, limit) < limit.burst then
    call('ZADD', IDLE_LANES, now + (limit.burst - l.tokens) / limit.rate * 1000, l.name)
    return false
  end
  if l.there then call('DEL', LANE .. l.name) end
  if l.refill then call('ZREM', LANE_REFILLS, l.name) end
  return true
end

closing[1] = function() -- lanes that have changed
  for name, l in pairs(lanes) do
    local empty = l.running <= 0 and l.admitted <= 0 and call('EXISTS', PARKED .. name) == 0
    if l.changed and not (empty and forget(l)) then
      call('HSET', LANE .. name, 'running', l.running, 'admitted', l.admitted, 'reserved', l.reserved,
        'tokens', l.tokens or '', 'at', l.at or '', 'refill', l.refill or '')
    end
  end
end
