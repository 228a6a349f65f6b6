-- subscribe: report ends and new items of live tasks to a session, until they or the session end.
-- KEYS[1]: prefix. ARGV: now, session, ms that a session without heartbeats lives, the most subscriptions of a session, uuids.
-- Returns: nothing.
-- uses: record_format caller_lease
local session, subscriptions, uuids = ARGV[2], P .. 'subscriptions:' .. ARGV[2], {}
ensure_session(session, ARGV[3])
for i = 5, #ARGV do uuids[#uuids + 1] = ARGV[i] end
local seqs = read_fields(IDS, uuids)
for i = 1, #seqs do seqs[i] = seqs[i] or '' end
local tasks, histories = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
local left = tonumber(ARGV[4]) - call('SCARD', subscriptions)
for i, seq in ipairs(seqs) do
  local r = tasks[i] and to_record(seq, tasks[i], histories[i])
  if r and not r.ended and not r.policy.undecodable and left > 0 and call('SADD', subscriptions, seq) == 1 then
    left = left - 1
    call('SADD', P .. 'subscribers:' .. number_of(seq), session)
    r.subscribed = true
    save(r)
  end
end
commit()
return nil
