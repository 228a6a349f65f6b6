-- cancel: flags all that live; those not held are leased to the caller as chores.
-- KEYS[1]: prefix. ARGV: now, session, reason, lease (ms that a session lives which only cancels), uuids.
-- Returns: fence (0: nothing was leased), [seqs in one, tasks, pasts].
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps sessions change_log notify lease
local session, leased, mine = ARGV[2], {}, {}
caller, reason = session, ARGV[3]
call('HDEL', SEQUENCES, '') -- after a deletion, if only of nothing, a full server lets the rest through
present(session, ARGV[4])
for i = 5, #ARGV do
  local seq = call('HGET', IDS, ARGV[i])
  local r = seq and not mine[seq] and load(seq)
  local fence = r and call('HGET', LEASED, seq)
  if fence then
    r.cancel = true
    save(r)
    local holder = claim_of(tonumber(fence))[1]
    call('SADD', CANCEL_REQUESTS .. holder, seq)
    listed(cancels, holder, r.uuid)
  elseif r and not r.ended then
    r.cancel = true
    if CHORE_REASONS[r.why] then
      call('ZREM', CHORE, seq)
      r.why = 'cancel'
      save(r)
    else
      r.state = find_place(r)
      leave(r, r.state)
      end_as_chore(r, 'cancel')
    end
    leased[#leased + 1], mine[seq] = seq, true
  end
end
return lease(session, leased)
