-- fire: the tasks of a schedule's window and its next time, unless it has changed or is paused.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, rev, next_at, last_at, [at, after] of its tasks], …], policies (msgpack
--   {digest: text}), of each the uuids in one, head and body each.
-- Returns: 1 or 0 for each.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps unique_keys force_hashtable insert insert_payloads schedules change_log notify
local answers = {}
payload, texts = 3, unpacked(ARGV[3])
for i, fire in ipairs(unpacked(ARGV[2])) do
  local old, tasks = schedule(fire[1]), next_tasks(fire[5])
  if old and old[3] == fire[2] and not old[4] then
    local _, fresh = add_all(tasks)
    write_schedule(fire[1], {old[1], fire[3], old[3] + 1, false, fire[4] or old[5], old[6] + fresh, old[7]})
    answers[i] = 1
  else
    answers[i] = 0
  end
end
finish()
return answers
