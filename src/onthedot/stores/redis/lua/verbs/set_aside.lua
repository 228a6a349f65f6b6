-- set_aside: take claimed records whose uuid cannot be read out of the claim, and keep their bytes.
-- KEYS[1]: prefix. ARGV: now, session, fence, seqs.
-- Returns: nothing.
-- uses: requeue leases notify
local session, fence, seqs = ARGV[2], ARGV[3], {}
for i = 4, #ARGV do
  if call('HGET', LEASED, ARGV[i]) == fence then seqs[#seqs + 1] = ARGV[i] end
end
local tasks, histories, records = read_fields(TASK, seqs), read_fields(HISTORY, seqs), {}
for i, seq in ipairs(seqs) do records[i] = to_record(seq, tasks[i] or '', histories[i]) end
if #seqs > 0 then release_leases(tonumber(fence), session, seqs) end
for _, r in ipairs(records) do
  release(r, 1)
  requeue(r)
end
commit()
return nil
