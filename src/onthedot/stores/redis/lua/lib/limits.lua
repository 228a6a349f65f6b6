-- What may start now: limits by name and by whom, what they come to, and the buckets of their rates.
local LIMITS, LANE, LANE_REFILLS, IDLE_LANES = P .. 'limits', P .. 'lane:', P .. 'lane_refills', P .. 'idle_lanes'
local SLACK = 1e-3 -- ms that a moment may lose to rounding: the tokens of this time are lent, and stay owed
local effectives, any, lanes = {}, nil, {}

local function declared()
  if any == nil then any = call('EXISTS', LIMITS) == 1 end
  return any
end

local function effective(name) -- the name's own before its star, the operator's before code's, field by field
  if not declared() then return nil end
  if effectives[name] ~= nil then return effectives[name] or nil end
  local fields, head = {name .. '|operator', name .. '|code'}, name:match('^([^/]*)/')
  if head then
    fields[3], fields[4] = head .. '/*|operator', head .. '/*|code'
  end
  local limit = false
  for _, packed in ipairs(call('HMGET', LIMITS, unpack(fields))) do
    local each = packed and unpacked(packed)
    if each and (each[1] or each[2] or each[4]) then -- others say nothing: what code no longer declares, or how lanes are made
      limit = limit or {burst = 1}
      limit.cap = limit.cap or each[1] or nil
      if each[2] and not limit.rate then limit.rate, limit.burst = each[2], each[3] end
      limit.paused = limit.paused or each[4]
    end
  end
  effectives[name] = limit
  return limit or nil
end

local function lane(name) -- of a source only the bucket is used
  local l = lanes[name]
  if not l then
    local f = call('HMGET', LANE .. name, 'running', 'admitted', 'reserved', 'tokens', 'at', 'refill')
    l = {
      name = name, running = tonumber(f[1]) or 0, admitted = tonumber(f[2]) or 0, reserved = tonumber(f[3]) or 0,
      tokens = tonumber(f[4]), at = tonumber(f[5]), refill = tonumber(f[6]), there = f[1],
    }
    lanes[name] = l
  end
  return l
end

local function level(l, limit)
  if not l.tokens then l.tokens, l.at = limit.burst, now end
  if now > l.at then l.tokens, l.at = l.tokens + limit.rate * (now - l.at) / 1000, now end
  l.tokens = math.min(l.tokens, limit.burst)
  return l.tokens
end
