-- resolve_ids: read the uuids of tasks by seq, for readers of the change feed.
-- KEYS[1]: prefix. ARGV: now, seqs.
-- Returns: uuids, "" for tasks that are deleted or whose uuid cannot be read.
-- uses: prelude
local seqs, uuids = {}, {}
for i = 2, #ARGV do seqs[#seqs + 1] = ARGV[i] end
for i, task in ipairs(read_fields(TASK, seqs)) do
  local has_uuid, uuid = false, nil
  if task and #task > 16 then has_uuid, uuid = pcall(uuid_at, task, 17 + struct.unpack('>I2', task, 15)) end
  uuids[i] = has_uuid and uuid or ''
end
return uuids
