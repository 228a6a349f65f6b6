-- cancel: flag all live tasks; those that are not leased are leased to the caller as chores.
-- KEYS[1]: prefix. ARGV: now, session, reason, ms that a session without heartbeats lives, uuids.
-- Returns: fence (0: nothing was leased), [seqs in one, tasks, histories].
-- uses: places caller_lease
local session, leased, mine = ARGV[2], {}, {}
caller, cancel_reason = session, ARGV[3]
call('HDEL', SEQUENCES, '') -- after a deletion, even of nothing, a full server allows the other writes
ensure_session(session, ARGV[4])
for i = 5, #ARGV do
  local seq = call('HGET', IDS, ARGV[i])
  local r = seq and not mine[seq] and load(seq)
  local fence = r and call('HGET', LEASED, seq)
  if r then r.uuid = ARGV[i] end -- that of an undecodable record may be unreadable
  if fence then
    r.cancel_requested = true
    save(r)
    local holder = claim_of(tonumber(fence))[1]
    call('SADD', CANCEL_REQUESTS .. holder, seq)
    append(cancel_requests, holder, r.uuid)
  elseif r and not r.ended then
    r.cancel_requested = true
    if UNQUEUED_REASONS[r.reason] then
      call('ZREM', CHORE, seq)
      r.reason = 'cancel'
      save(r)
    else
      r.state = find_place(r) or 'scheduled'
      leave(r, r.state)
      end_as_chore(r, 'cancel')
    end
    leased[#leased + 1] = seq
    mine[seq] = true
  end
end
return lease_to_caller(session, leased)
