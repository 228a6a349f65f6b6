-- The end of a verb: what was put off is written, then others are told. A server that forbids PUBLISH is left silent:
-- then the poll interval carries.
local function publish(channel, what) redis.pcall('PUBLISH', channel, what) end

local function notify_session(session, head, uuids)
  head = pack(head)
  publish(P .. 'to:' .. session, struct.pack('>I2', #head) .. head .. table.concat(uuids))
end

local function keys_of(set)
  local list = {}
  for key in pairs(set) do list[#list + 1] = key end
  return list
end

local function finish()
  flush()
  for until_, seqs in pairs(kept) do retain('retention', until_, seqs) end
  for until_, seqs in pairs(results) do retain('result_retention', until_, seqs) end
  for i = 1, #closing do closing[i]() end
  for source, its in pairs(counts) do add_up(TALLY, its, source .. ':') end
  add_up(SEQ_BLOCKS, blocks)
  add_up(P .. 'policy_uses', uses)
  log()
  local last = {}
  for name, number in pairs(grown) do
    last[#last + 1] = name
    last[#last + 1] = number
  end
  call_in_parts('HSET', SEQUENCES, last)
  local sources = keys_of(notified)
  if #sources > 0 then
    call('DEL', IDLE_WORKERS) -- who is told asks anew, and takes by rank
    publish(P .. 'hints', pack({caller or false, sources}))
  end
  for session, uuids in pairs(ends) do notify_session(session, {'ended'}, uuids) end
  for session, uuids in pairs(cancels) do notify_session(session, {'cancel', reason}, uuids) end
end
