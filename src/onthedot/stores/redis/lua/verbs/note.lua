-- note: into the journals of tasks, under their leases.
-- KEYS[1]: prefix. ARGV: now, then uuid, fence, session, kind, name, data each.
-- Returns: for each: 1 if the lease holds, else 0.
-- uses: prelude write_buffer policies records journal
call('HDEL', SEQUENCES, '') -- after a deletion, if only of nothing, a full server lets the rest through
local answers = {}
for i = 2, #ARGV, 6 do
  local seq = call('HGET', IDS, ARGV[i])
  local claim = seq and call('HGET', LEASED, seq) == ARGV[i + 1] and call('HGET', CLAIMS, ARGV[i + 1])
  local held = claim and unpacked(claim)[1] == ARGV[i + 2]
  if held then write_note(seq, ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], tonumber(ARGV[i + 1]), ARGV[i + 2]) end
  answers[#answers + 1] = held and 1 or 0
end
return answers
