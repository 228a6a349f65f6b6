-- turn: settle; then, with a claim request, reap dead sessions, refill lanes, end waits, promote alarms and claim, in one step.
-- KEYS[1]: prefix. ARGV: now, session, outcomes, claim request ("" or msgpack [number, pools, max_suspects]), offer ("" or ms as
--   a double, and as in handoff.lua), policies of new tasks (msgpack {digest: text}), payloads.
-- outcomes: msgpack [[fence, session, state, keep, keep_result, after, counted, reset_crashes, wait (see record_format.lua),
--   number, same data, groups of new tasks (see insert.lua), number of new tasks], …]: runs of equal outcomes. Payloads of each: its uuids in one, the result or error of
--   each task (one, if all have the same), and of its effects all uuids in one and the body of each new task.
-- Returns: verdicts (one letter each: ok, repeat, lost), alive, and with a request of a live session: msgpack [fence, idle
--   sources, woken, next_in, more, now, identity, last fence], tasks and chores as [seqs in one, tasks, histories if any], schedules as [name,
--   packed, rule].
-- uses: settle payloads alarms reap claim
local session, verdicts = ARGV[2], {}
caller = session
payload = 6
policy_texts = unpacked(ARGV[6])
check_policies()

local function next_outcomes(packed)
  local fence, owner, state, keep, keep_result, after, counted_retry, reset_crashes, wait, number, same, groups, new =
    unpack(packed, 1, 13)
  local o = {fence = fence, session = owner, state = state, keep = keep, keep_result = keep_result, after = after}
  o.counted, o.reset_crashes, o.wait = counted_retry, reset_crashes, wait and to_wait(wait)
  o.uuids = uuids_in(next_payload())
  if same then
    local data = next_payload()
    o.data = {}
    for i = 1, number do o.data[i] = data end
  else
    o.data = next_payloads(number)
  end
  if groups then o.effects = {groups = groups, uuids = uuids_in(next_payload()), bodies = next_payloads(new)} end
  return o
end

for _, packed in ipairs(ARGV[3] ~= '' and unpacked(ARGV[3]) or {}) do settle(next_outcomes(packed), verdicts) end
verdicts = table.concat(verdicts)
local answer
if ARGV[4] ~= '' then
  local more = reap_overdue()
  if call('HEXISTS', WORKERS, session) == 1 then
    local number, pools, max_suspects = unpack(unpacked(ARGV[4]), 1, 3)
    local request = {number = number, pools = pools, max_suspects = max_suspects, offer = ARGV[5]}
    more = refill_lanes() or more
    write_counters()
    local identity = call('HMGET', SEQUENCES, 'identity', 'fence', 'has_dirty_counters')
    if identity[3] then
      -- here: waits
      more = end_waits() or more
    end
    more = promote() or more
    answer = claim(session, request, more, identity)
  end
end
commit()
return {verdicts, answer and 1 or call('HEXISTS', WORKERS, session), answer or false}
