-- close_session: requeue the tasks of a session without counting, or, if its process has crashed, count its runs as crashed.
-- KEYS[1]: prefix. ARGV: now, session, crashed (1 or 0).
-- Returns: 1 if tasks are left to requeue, else 0.
-- uses: reap
local session, crashed = ARGV[2], ARGV[3] == '1'
caller = session
if crashed then
  local function is_left() return call('ZSCORE', SESSION_LEASES, session) end -- until all its tasks are requeued
  if not call('ZSCORE', P .. 'dead_sessions', session) or is_left() then reap_session(session, false, BATCH) end
  commit()
  return is_left() and 1 or 0
end
if call('ZSCORE', SESSION_LEASES, session) then reap_session(session, true, BATCH) end
commit()
return call('EXISTS', CLAIMS_OF .. session)
