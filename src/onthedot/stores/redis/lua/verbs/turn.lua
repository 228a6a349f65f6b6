-- turn: settle, then (with an ask) reap dead sessions, refill lanes, promote alarms and claim: one step.
-- KEYS[1]: prefix. ARGV: now, session, outcomes, ask ("" or msgpack [number, pools, suspects, known]),
--   what it waits for ("" or ms as a double, and as in handing.lua), policies of what is added (msgpack {digest: text}), payloads.
-- outcomes: msgpack [[fence, session, number, state, keep, keep_result, after, counted, [at, after] of adds, same], …]: runs of
--   like ones. Payloads: in this order, their uuids in one, the result or error of each (one, if it is the same), and of what
--   it adds the uuids in one, head and body each.
-- Returns: verdicts (a letter each: o k, r epeat, l ost), alive, and with an ask of the living:
--   msgpack [fence, rest, woke, next_in, more, now], tasks and chores as [seqs in one, tasks, pasts if any], schedules as [name, packed, rule].
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps unique_keys force_hashtable insert insert_payloads finish sessions reap journal requeue settle_uniform settle
-- uses: due_work capacity claim_queues claim_pools strays change_log notify claim
local session, verdicts = ARGV[2], {}
caller, payload, texts = session, 6, unpacked(ARGV[6])
for _, o in ipairs(ARGV[3] ~= '' and unpacked(ARGV[3]) or {}) do
  settle({
    fence = o[1], session = o[2], uuids = uuids_in(next_payloads(1)[1]), state = o[4], keep = o[5], keep_result = o[6], after = o[7],
    counted = o[8], data = o[10] and the_same(o[3]) or next_payloads(o[3]), adds = o[9] and next_tasks(o[9]),
  }, verdicts)
end
verdicts = table.concat(verdicts)
local answer
if ARGV[4] ~= '' then
  local more = reap_overdue()
  if call('HEXISTS', WORKERS, session) == 1 then
    local ask = unpacked(ARGV[4])
    local refilled, promoted = refill_lanes(), promote()
    answer = claim(session, {number = ask[1], pools = ask[2], suspects = ask[3], known = ask[4], waits = ARGV[5]},
      more or refilled or promoted)
  end
end
finish()
return {verdicts, answer and 1 or call('HEXISTS', WORKERS, session), answer or false}
