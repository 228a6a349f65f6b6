-- close: a session goes in order; what it still holds goes back, uncounted.
-- KEYS[1]: prefix. ARGV: now, session.
-- Returns: 1 if not all is back yet.
-- uses: call records finish limits lanes laning entering places steps sessions burying telling
caller = ARGV[2]
if call('ZSCORE', LEASES, ARGV[2]) then bury(ARGV[2], true, BATCH) end
finish(save_lanes)
return call('EXISTS', CLAIMS_OF .. ARGV[2])
