-- Lanes: how many run, how many were let into ready, and when time alone opens one for the next.
local function refill_at(l, when)
  if not l.refill or when < l.refill then
    l.refill, l.changed = when, true
    call('ZADD', REFILLS, when, l.name)
  end
end

local function opens(l, price) -- may one more be let into ready? If only time can tell, the refill is set
  local limit = effective(l.name)
  if not limit then return true end
  if limit.paused or (limit.cap and l.running + l.admitted >= limit.cap) then return false end
  if not limit.rate then return true end
  price = math.min(price, limit.burst) -- one that was added under a larger burst waits for a full bucket
  local missing = price - (level(l, limit) - l.pledged)
  if missing <= limit.rate * SLACK / 1000 then return true end
  if l.pledged + price <= limit.burst then refill_at(l, now + missing / limit.rate * 1000) end
  return false -- else the admitted ones must start first
end

local function starts(l, price) -- may an admitted one start? Limits can have changed since it was admitted
  local limit = effective(l.name)
  if not limit then return true end
  if limit.paused or (limit.cap and l.running >= limit.cap) then return false end
  if not limit.rate then return true end
  price = math.min(price, limit.burst)
  if price - level(l, limit) > limit.rate * SLACK / 1000 then
    refill_at(l, now) -- what was pledged to it may be enough for the first of those that are parked
    return false
  end
  l.tokens, l.changed = l.tokens - price, true
  return true
end

local function admitted(l, r, by)
  l.admitted, l.changed = l.admitted + by, true
  l.pledged = l.admitted == 0 and 0 or l.pledged + by * cost(r)
end

local function running(l, by) l.running, l.changed = l.running + by, true end

local function forget(l) -- a half-full bucket stays until it is full: forgetting it would fill it
  local limit = effective(l.name)
  if l.tokens and limit and limit.rate and level(l, limit) < limit.burst then
    call('ZADD', IDLE, now + (limit.burst - l.tokens) / limit.rate * 1000, l.name)
    return false
  end
  if l.there then call('DEL', LANE .. l.name) end
  if l.refill then call('ZREM', REFILLS, l.name) end
  return true
end

closing[1] = function() -- lanes that have changed
  for name, l in pairs(lanes) do
    local empty = l.running <= 0 and l.admitted <= 0 and call('EXISTS', PARKED .. name) == 0
    if l.changed and not (empty and forget(l)) then
      call('HSET', LANE .. name, 'running', l.running, 'admitted', l.admitted, 'pledged', l.pledged,
        'tokens', l.tokens or '', 'at', l.at or '', 'refill', l.refill or '')
    end
  end
end
