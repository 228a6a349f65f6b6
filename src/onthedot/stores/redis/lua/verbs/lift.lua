-- lift: take pending tasks out of the order and lease them to the caller, which moves them to another store.
-- KEYS[1]: prefix. ARGV: now, session, ms that a session without heartbeats lives, uuids.
-- Returns: fence (0: nothing was leased), [seqs in one, tasks, histories].
-- uses: reap caller_lease
local session, leased, mine = ARGV[2], {}, {}
caller = session
call('HDEL', SEQUENCES, '') -- after a deletion, even of nothing, a full server allows the other writes
reap_overdue()
flush()
ensure_session(session, ARGV[3])
for i = 4, #ARGV do
  local seq = call('HGET', IDS, ARGV[i])
  local r = seq and not mine[seq] and call('HEXISTS', LEASED, seq) == 0 and load(seq)
  if r and (r.policy.undecodable or r.links or r.wait) then
    r = nil -- a worker ends it here, or others here depend on it
  elseif r and not r.ended and not UNQUEUED_REASONS[r.reason] then
    r.state = find_place(r)
    leave(r, r.state)
    end_as_chore(r, 'lifted')
  end
  if r and not r.ended and r.reason == 'lifted' then
    leased[#leased + 1] = seq
    mine[seq] = true
  end
end
return lease_to_caller(session, leased)
