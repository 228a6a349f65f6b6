-- Sessions: the keys of workers.
-- uses: leases
local WORKERS, SESSION_LEASES, DEAD_SESSIONS = P .. 'workers', P .. 'session_leases', P .. 'dead_sessions'
local SESSION, CANCEL_REQUESTS = P .. 'session:', P .. 'cancel_requests:'
