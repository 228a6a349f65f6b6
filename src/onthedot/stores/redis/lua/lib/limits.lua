-- Limits by name and owner, their effective values, and the token buckets of their rates.
-- uses: record_format
local SLACK = 1e-3 -- ms that a time may lose to rounding: the tokens of that time are lent and stay owed
local CLOCK_STEP = 2000 -- ms; a bucket that is further ahead continues from the clock's new time
local effective_limits, any_limits, lanes = {}, nil, {}

local function has_limits()
  if any_limits == nil then any_limits = call('EXISTS', LIMITS) == 1 end
  return any_limits
end

local function effective(name) -- the name's own limit before its star, the operator's before code's, field by field
  if not has_limits() then return nil end
  if effective_limits[name] ~= nil then return effective_limits[name] or nil end
  local fields, head = {name .. '|operator', name .. '|code'}, name:match('^([^/]*)/')
  if head then
    fields[3], fields[4] = head .. '/*|operator', head .. '/*|code'
  end
  local limit = false
  for _, packed in ipairs(call('HMGET', LIMITS, unpack(fields))) do
    if packed then
      local cap, rate, burst, paused = unpack(unpacked(packed), 1, 4)
      if cap or rate or paused then -- others set nothing: code no longer declares them, or they only hold a lane rule
        limit = limit or {burst = 1}
        limit.cap = limit.cap or cap or nil
        if rate and not limit.rate then limit.rate, limit.burst = rate, burst end
        limit.paused = limit.paused or paused
      end
    end
  end
  effective_limits[name] = limit
  return limit or nil
end

local function lane(name) -- of a source only the token bucket is used
  local l = lanes[name]
  if not l then
    local running, admitted, reserved, tokens, filled_at, refill =
      unpack(call('HMGET', LANE .. name, 'running', 'admitted', 'reserved', 'tokens', 'at', 'refill'), 1, 6)
    l = {
      name = name, running = tonumber(running) or 0, admitted = tonumber(admitted) or 0, reserved = tonumber(reserved) or 0,
      tokens = tonumber(tokens), at = tonumber(filled_at), refill = tonumber(refill), stored = running,
    }
    lanes[name] = l
  end
  return l
end

local function is_ahead(l) -- the server's clock was set back
  return l.at and l.at - now > CLOCK_STEP
end

local function level(l, limit)
  if not l.tokens then l.tokens, l.at = limit.burst, now end
  if now > l.at then
    l.tokens, l.at = l.tokens + limit.rate * (now - l.at) / 1000, now
  elseif is_ahead(l) then
    l.at, l.changed = now, true
  end
  l.tokens = math.min(l.tokens, limit.burst)
  return l.tokens
end

local function spend(l, limit, tokens)
  l.tokens = level(l, limit) - tokens
  l.changed = true
end
