-- counters: read counters.
-- KEYS[1]: prefix. ARGV: now, names.
-- Returns: values, failures; nothing for a counter that was never raised.
-- uses: prelude
local names = {}
for i = 2, #ARGV do names[#names + 1] = ARGV[i] end
return {read_fields(P .. 'counters', names), read_fields(P .. 'counters_failed', names)}
