-- The keys of flow counters, apart from counters.lua: most calls write no counter and do not need them.
-- uses: prelude
local COUNTERS, COUNTERS_FAILED, COUNTER_UNTIL = P .. 'counters', P .. 'counters_failed', P .. 'counter_until'
local DIRTY_COUNTERS = P .. 'dirty_counters'
local COUNTER_KEEP = 2592000000 -- ms after the last change, if no task waits for it
