-- note: write into the journals of tasks, under their leases.
-- KEYS[1]: prefix. ARGV: now, then uuid, fence, session, kind, name, data of each note.
-- Returns: for each note 1 if the lease is valid, else 0.
-- uses: journal lease messages
call('HDEL', SEQUENCES, '') -- after a deletion, even of nothing, a full server allows the other writes
local answers, new_items = {}, {} -- new_items: session that subscribes → uuids
for i = 2, #ARGV, 6 do
  local uuid, fence, session, kind, name, data = unpack(ARGV, i, i + 5)
  local seq = call('HGET', IDS, uuid)
  local claim = seq and call('HGET', LEASED, seq) == fence and call('HGET', CLAIMS, fence)
  local held = claim and unpacked(claim)[1] == session
  if held then write_note(seq, kind, name, data, tonumber(fence), session) end
  for _, subscriber in ipairs(held and kind == 'item' and call('SMEMBERS', P .. 'subscribers:' .. number_of(seq)) or {}) do
    new_items[subscriber] = (new_items[subscriber] or '') .. uuid
  end
  answers[#answers + 1] = held and 1 or 0
end
for session, uuids in pairs(new_items) do notify_session(session, {'items'}, {uuids}) end
return answers
