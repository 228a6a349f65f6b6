-- put: schedules are declared (rev 0) or compared and set; a limit always stands.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, declared, next_at, rev, paused, last_at, runs], …],
--   msgpack [[name, by, cap, rate, burst, paused, reason], …], then the rules of the schedules.
-- Returns: 1 or 0 for each schedule.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit schedules change_log notify
local function put(new, rule)
  local name, old = new[1], schedule(new[1])
  if new[4] > 0 then
    if not old or old[3] ~= new[4] then return 0 end
    write_schedule(name, {new[2], new[3], new[4] + 1, new[5], new[6], new[7]}, rule)
  elseif not old then
    write_schedule(name, {new[2], new[3], 1, new[5], new[6], new[7]}, rule)
  elseif new[2] == '' or new[2] ~= old[1] then
    write_schedule(name, {new[2], new[3], old[3] + 1, old[4], old[5], old[6]}, rule)
  end
  return 1
end

local answers = {}
for i, new in ipairs(unpacked(ARGV[2])) do
  answers[i] = put(new, ARGV[3 + i])
  told[''] = true -- of no source, but somebody has to look at the time again
end
for _, new in ipairs(unpacked(ARGV[3])) do
  local name = new[1]
  call('HSET', LIMITS, name .. '|' .. new[2], pack({new[3] or false, new[4] or false, new[5], new[6], new[7]}))
  told[name:match('^[^/]*')] = true
  if name:sub(-2) == '/*' then
    call('HSET', COUNT, 'reopen', 0) -- its lanes are looked at by the next turns
  elseif call('EXISTS', PARKED .. name) == 1 then
    refill_at(lane(name), now)
  end
end
finish()
return answers
