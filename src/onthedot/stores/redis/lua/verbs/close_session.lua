-- close_session: its tasks are requeued, uncounted; or its process has crashed: its runs are counted as crashed.
-- KEYS[1]: prefix. ARGV: now, session, crashed (1 or 0).
-- Returns: 1 if there are tasks left to requeue.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps sessions reap change_log notify
local session, crashed = ARGV[2], ARGV[3] == '1'
caller = session
if crashed then
  local function dying() return call('HEXISTS', SESSION .. session, 'reaping') == 1 end
  if not call('ZSCORE', DEAD_SESSIONS, session) or dying() then reap_session(session, false, BATCH) end
  finish()
  return dying() and 1 or 0
end
if call('ZSCORE', SESSION_LEASES, session) then reap_session(session, true, BATCH) end
finish()
return call('EXISTS', CLAIMS_OF .. session)
