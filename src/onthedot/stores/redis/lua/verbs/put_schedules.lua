-- put_schedules: schedules are declared (rev 0) or compared and set.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, definition_digest, next_at, rev, paused, last_at, runs, incoming], …],
--   then the rule of each.
-- Returns: 1 or 0 for each.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit schedules change_log notify
local function put(new, rule)
  local name, old = new[1], schedule(new[1])
  if new[4] > 0 then
    if not old or old[3] ~= new[4] then return 0 end
    write_schedule(name, {new[2], new[3], new[4] + 1, new[5], new[6], new[7], new[8]}, rule)
  elseif not old then
    write_schedule(name, {new[2], new[3], 1, new[5], new[6], new[7], new[8]}, rule)
  elseif new[2] == '' or new[2] ~= old[1] then
    write_schedule(name, {new[2], new[3], old[3] + 1, old[4], old[5], old[6], old[7]}, rule)
  end
  return 1
end

local answers = {}
for i, new in ipairs(unpacked(ARGV[2])) do
  answers[i] = put(new, ARGV[2 + i])
  notified[''] = true -- of no source: workers check schedules again
end
finish()
return answers
