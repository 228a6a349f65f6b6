-- sessions: read the workers and the sessions whose lease is not over.
-- KEYS[1]: prefix. ARGV: now.
-- Returns: name and info of each worker in turn; the names of the sessions whose lease is not over.
-- uses: prelude
return {call('HGETALL', P .. 'workers'), call('ZRANGEBYSCORE', P .. 'session_leases', '(' .. string.format('%.17g', now), '+inf')}
