-- lift: tasks that wait, out of the order and leased to the caller, who moves them to another store.
-- KEYS[1]: prefix. ARGV: now, session, lease (ms that a session lives which only lifts), uuids.
-- Returns: fence (0: nothing was leased), [seqs in one, tasks, pasts].
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps sessions reap due_work change_log notify lease
local session, leased, mine = ARGV[2], {}, {}
caller = session
call('HDEL', SEQUENCES, '') -- after a deletion, if only of nothing, a full server lets the rest through
reap_overdue()
flush()
present(session, ARGV[3])
for i = 4, #ARGV do
  local seq = call('HGET', IDS, ARGV[i])
  local r = seq and not mine[seq] and call('HEXISTS', LEASED, seq) == 0 and load(seq)
  if r and not r.ended and not CHORE_REASONS[r.why] then
    r.state = find_place(r)
    leave(r, r.state)
    end_as_chore(r, 'lifted')
  end
  if r and not r.ended and r.why == 'lifted' then
    leased[#leased + 1], mine[seq] = seq, true
  end
end
return lease(session, leased)
