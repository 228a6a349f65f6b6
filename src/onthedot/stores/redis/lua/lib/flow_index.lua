-- The tasks of each flow, and the last task of each, by seq.
-- uses: packed_uuid
local function index_flow(flow, ids, length) -- ids: uuid and seq of each new task in turn; behind this length, of others
  local seqs, last = {}, packed_uuid(flow)
  for i = 1, length, 2 do
    seqs[#seqs + 1] = ids[i + 1]
    if ids[i] == last then call('SADD', P .. 'flows', ids[i + 1]) end
  end
  call_in_parts('SADD', P .. 'flow:' .. flow, seqs)
end
