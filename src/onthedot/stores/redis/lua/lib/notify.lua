-- The end of a verb: what was put off is written, then others are told. A server that forbids PUBLISH is left silent:
-- then the poll interval carries.
local function tell(channel, what) redis.pcall('PUBLISH', channel, what) end

local function tell_session(session, head, uuids)
  head = pack(head)
  tell(P .. 'to:' .. session, struct.pack('>I2', #head) .. head .. table.concat(uuids))
end

local function keys_of(set)
  local list = {}
  for key in pairs(set) do list[#list + 1] = key end
  return list
end

local function finish()
  flush()
  for until_, seqs in pairs(kept) do keep('kept', until_, seqs) end
  for until_, seqs in pairs(results) do keep('results', until_, seqs) end
  for i = 1, #closing do closing[i]() end
  for source, its in pairs(counts) do add_up(TALLY, its, source .. ':') end
  add_up(BLOCKS, blocks)
  add_up(P .. 'uses', uses)
  log()
  local last = {}
  for name, number in pairs(grown) do
    last[#last + 1] = name
    last[#last + 1] = number
  end
  many('HSET', COUNT, last)
  local sources = keys_of(told)
  if #sources > 0 then
    call('DEL', WAITING) -- who is told asks anew, and takes by rank
    tell(P .. 'hints', pack({caller or false, sources}))
  end
  for session, uuids in pairs(ends) do tell_session(session, {'ended'}, uuids) end
  for session, uuids in pairs(cancels) do tell_session(session, {'cancel', reason}, uuids) end
end
