-- server: its clock, and what it says of itself and of its memory. Reads only.
-- KEYS[1]: prefix, so that a cluster asks the right node. ARGV: now.
-- Returns: now, INFO server, INFO memory.
-- uses: prelude
return {string.format('%.17g', now), call('INFO', 'server'), call('INFO', 'memory')}
