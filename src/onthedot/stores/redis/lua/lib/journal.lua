-- The journal of a task: progress: the last stays; error (one an attempt): the first stays.
-- A note: number, length of head I2, head = msgpack [fence, session], data.
local function write_note(seq, kind, name, data, fence, session)
  local key, field = P .. 'journal:' .. number_of(seq), kind .. ':' .. name
  if kind == 'error' and call('HEXISTS', key, field) == 1 then return end
  local head = pack({call('HINCRBY', SEQUENCES, 'notes', 1), fence, session})
  call('HSET', key, field, struct.pack('>I2', #head) .. head .. data)
end
