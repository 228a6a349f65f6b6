-- notes: read the journal of a task after a number, oldest first.
-- KEYS[1]: prefix. ARGV: now, uuid, number, the most to return, kind ("": all).
-- Returns: field and note in turn, see journal.lua.
-- uses: policies
local seq, after, limit = call('HGET', IDS, ARGV[2]), '(' .. ARGV[3], tonumber(ARGV[4])
if not seq or #seq ~= 6 then return {} end
local kind, fields, offset = ARGV[5] ~= '' and ARGV[5] .. ':', {}, 0
local journal, order = P .. 'journal:' .. number_of(seq), P .. 'journal_order:' .. number_of(seq)
if call('ZCARD', order) < call('HLEN', journal) then -- written by a version that kept no order
  for _, field in ipairs(call('HKEYS', journal)) do
    local _, head = cmsgpack.unpack_one(call('HGET', journal, field), 2)
    call('ZADD', order, head[1], field)
  end
end
repeat
  local page = call('ZRANGEBYSCORE', order, after, '+inf', 'LIMIT', offset, limit)
  for _, field in ipairs(page) do
    if #fields < limit and (not kind or field:sub(1, #kind) == kind) then fields[#fields + 1] = field end
  end
  offset = offset + #page
until #page < limit or #fields >= limit
local found = {}
for i, note in ipairs(read_fields(journal, fields)) do
  if note then
    found[#found + 1] = fields[i]
    found[#found + 1] = note
  end
end
return found
