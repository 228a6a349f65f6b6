-- close_session: requeue the tasks of a session without counting, or, if its process has crashed, count its runs as crashed.
-- KEYS[1]: prefix. ARGV: now, session, crashed (1 or 0).
-- Returns: 1 if tasks are left to requeue, else 0.
-- uses: reap
local session, crashed = ARGV[2], ARGV[3] == '1'
caller = session
if crashed then
  local function is_reaping() return call('HEXISTS', SESSION .. session, 'reaping') == 1 end
  if not call('ZSCORE', DEAD_SESSIONS, session) or is_reaping() then reap_session(session, false, BATCH) end
  commit()
  return is_reaping() and 1 or 0
end
if call('ZSCORE', SESSION_LEASES, session) then reap_session(session, true, BATCH) end
commit()
return call('EXISTS', CLAIMS_OF .. session)
