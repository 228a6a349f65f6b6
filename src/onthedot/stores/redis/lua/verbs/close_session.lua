-- close: a session goes in order; what it still holds goes back, uncounted.
-- KEYS[1]: prefix. ARGV: now, session.
-- Returns: 1 if not all is back yet.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps sessions reap change_log notify
caller = ARGV[2]
if call('ZSCORE', LEASES, ARGV[2]) then bury(ARGV[2], true, BATCH) end
finish()
return call('EXISTS', CLAIMS_OF .. ARGV[2])
