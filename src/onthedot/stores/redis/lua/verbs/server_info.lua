-- server_info: read the server's clock, version and memory.
-- KEYS[1]: prefix, which selects the node of a cluster. ARGV: now.
-- Returns: now, INFO server, INFO memory.
-- uses: prelude
return {string.format('%.17g', now), call('INFO', 'server'), call('INFO', 'memory')}
