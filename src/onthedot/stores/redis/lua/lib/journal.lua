-- The journal of a task. The last progress stays; of errors, the first of each attempt.
-- A note: length of head I2, head = msgpack [number, fence, session], data.
-- uses: policies
local function write_note(seq, kind, name, data, fence, session)
  local key, field = P .. 'journal:' .. number_of(seq), kind .. ':' .. name
  if kind == 'error' and call('HEXISTS', key, field) == 1 then return end
  local head = pack({call('HINCRBY', SEQUENCES, 'notes', 1), fence, session})
  call('HSET', key, field, struct.pack('>I2', #head) .. head .. data)
end
