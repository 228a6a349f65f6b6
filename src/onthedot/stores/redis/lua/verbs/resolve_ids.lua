-- resolve_ids: read uuid and source of tasks by seq, for readers of the change feed.
-- KEYS[1]: prefix. ARGV: now, seqs.
-- Returns: uuid and source in turn, "" for tasks that are deleted.
-- uses: record_format
local seqs, names = {}, {}
for i = 2, #ARGV do seqs[#seqs + 1] = ARGV[i] end
for i, task in ipairs(read_fields(TASK, seqs)) do
  local r = task and to_record(seqs[i], task)
  names[2 * i - 1], names[2 * i] = r and r.uuid or '', r and r.source or ''
end
return names
