-- Keys that several parts use. These, and the variables of write_buffer.lua, belong to the outer function (scripts.py): closures
-- over them are cheap. Lua allows 200 local variables per function, and 60 of an outer function.
-- uses: prelude
local SUSPECT, PARKED, PARKED_LANES, CHORE = P .. 'suspect:', P .. 'parked:', P .. 'parked_lanes', P .. 'chores'
local LIMITS, LANE, LANE_REFILLS = P .. 'limits', P .. 'lane:', P .. 'lane_refills'
local WORKERS, SESSION_LEASES, SESSION = P .. 'workers', P .. 'session_leases', P .. 'session:'
local CANCEL_REQUESTS, WAITERS = P .. 'cancel_requests:', P .. 'waiters:'
