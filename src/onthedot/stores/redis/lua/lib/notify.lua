-- The end of a verb: buffered writes first, then hints. Where PUBLISH is forbidden, the poll interval is the fallback.
-- uses: change_log messages
local cancel_requests, cancel_reason = {}, '' -- session → uuids of its runs

local function keys_of(set)
  local list = {}
  for key in pairs(set) do list[#list + 1] = key end
  return list
end

local function commit()
  flush()
  for i = 1, #closing do closing[i]() end
  write_tallies()
  write_transitions()
  local sources = keys_of(notified)
  if recheck or wait_over or #sources > 0 then
    call('DEL', IDLE_WORKERS) -- notified workers claim anew, by rank
    publish(P .. 'hints', pack({caller or false, sources, recheck or wait_over}))
  end
  for session, uuids in pairs(ended) do notify_session(session, {'ended'}, uuids) end
  for session, uuids in pairs(cancel_requests) do notify_session(session, {'cancel', cancel_reason}, uuids) end
end
