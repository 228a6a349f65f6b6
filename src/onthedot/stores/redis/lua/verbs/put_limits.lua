-- put_limits: store limits, each for its name and owner.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, owner, cap, rate, burst, paused, reason, paused_since, lane_rule, mode], …].
-- Returns: nothing.
-- uses: lanes notify
for _, limit in ipairs(unpacked(ARGV[2])) do
  local name, owner, cap, rate, burst, paused, reason, paused_since, lane_rule, mode = unpack(limit, 1, 10)
  call('HSET', LIMITS, name .. '|' .. owner, pack({
    cap or false, rate or false, burst, paused, reason, paused_since or false, lane_rule or false, mode,
  }))
  notified[name:match('^[^/]*')] = true
  if name:sub(-2) == '/*' then
    call('HSET', SEQUENCES, 'lane_check', 0) -- the next turns check its lanes
  elseif call('EXISTS', PARKED .. name) == 1 then
    set_refill(lane(name), now)
  end
end
commit()
return nil
