-- The journal of a task. Of progress the last note stays, of others the first. `journal_order` has the numbers of the notes, so
-- that a reader reads only what it returns.
-- A note: length of head I2, head = msgpack [number, fence, session], data.
-- uses: policies
local function write_note(seq, kind, name, data, fence, session)
  local key, field = P .. 'journal:' .. number_of(seq), kind .. ':' .. name
  if kind ~= 'progress' and call('HEXISTS', key, field) == 1 then return end
  local number = call('HINCRBY', SEQUENCES, 'notes', 1)
  local head = pack({number, fence, session})
  call('HSET', key, field, struct.pack('>I2', #head) .. head .. data)
  call('ZADD', P .. 'journal_order:' .. number_of(seq), number, field)
end
