-- put_limits: store limits, each for its name and owner, unless one of those that they replace has changed.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, owner, cap, rate, burst, paused, reason, paused_since, lane_rule, mode], …],
-- and the same of the replaced ones; one of these that sets nothing may be missing.
-- Returns: 1; or 0, and nothing has changed.
-- uses: lanes notify
local function stored_form(cap, rate, burst, paused, reason, paused_since, lane_rule, mode)
  return pack({cap or false, rate or false, burst, paused, reason, paused_since or false, lane_rule or false, mode or ''})
end

local function is_stored(limit)
  local stored = call('HGET', LIMITS, limit[1] .. '|' .. limit[2])
  local current = stored and stored_form(unpack(unpacked(stored), 1, 8)) -- another version has fewer or more fields
  return (current or stored_form(false, false, 1, false, '')) == stored_form(unpack(limit, 3, 10))
end

for _, limit in ipairs(unpacked(ARGV[3])) do
  if not is_stored(limit) then return 0 end
end
for _, limit in ipairs(unpacked(ARGV[2])) do
  local name, owner = unpack(limit, 1, 2)
  call('HSET', LIMITS, name .. '|' .. owner, stored_form(unpack(limit, 3, 10)))
  notified[name:match('^[^/]*')] = true
  if name:sub(-2) == '/*' then
    call('HSET', SEQUENCES, 'lane_check', 0) -- the next turns check its lanes
  elseif call('EXISTS', PARKED .. name) == 1 then
    set_refill(lane(name), now)
  end
end
commit()
return 1
