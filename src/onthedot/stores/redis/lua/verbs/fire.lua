-- fire: add the tasks of a schedule's window and set its next time, unless it has changed or is paused.
-- KEYS[1]: prefix. ARGV: now, msgpack [[name, rev, next_at, last_at, groups (see insert.lua), number of tasks], …], policies
--   (msgpack {digest: text}), then for each fire all uuids in one, and the body of each task.
-- Returns: 1 or 0 for each fire.
-- uses: schedules unique_keys payloads
local function fire(request)
  local name, rev, next_at, last_at, groups, number = unpack(request, 1, 6)
  local uuids, bodies = uuids_in(next_payload()), next_payloads(number)
  local schedule = load_schedule(name)
  if not schedule or schedule.rev ~= rev or schedule.paused then return 0 end
  local _, fresh = add(groups, uuids, bodies)
  schedule.next_at = next_at
  schedule.rev = rev + 1
  schedule.last_at = last_at or schedule.last_at
  schedule.runs = schedule.runs + fresh
  save_schedule(name, schedule)
  return 1
end

local answers = {}
payload = 3
policy_texts = unpacked(ARGV[3])
check_policies()
for i, request in ipairs(unpacked(ARGV[2])) do answers[i] = fire(request) end
commit()
return answers
