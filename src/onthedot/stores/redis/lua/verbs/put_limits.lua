-- put_limits: store limits, each for its name and owner.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, owner, cap, rate, burst, paused, reason, paused_since, lane_rule], …].
-- Returns: nothing.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit change_log notify
for _, new in ipairs(unpacked(ARGV[2])) do
  local name = new[1]
  call('HSET', LIMITS, name .. '|' .. new[2], pack({
    new[3] or false, new[4] or false, new[5], new[6], new[7], new[8] or false, new[9] or false,
  }))
  notified[name:match('^[^/]*')] = true
  if name:sub(-2) == '/*' then
    call('HSET', SEQUENCES, 'reopen', 0) -- the next turns check its lanes
  elseif call('EXISTS', PARKED .. name) == 1 then
    set_refill(lane(name), now)
  end
end
finish()
return nil
