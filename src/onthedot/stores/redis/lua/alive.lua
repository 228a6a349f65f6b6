-- alive: sessions whose lease is not over, whether somebody has buried the others or not. Reads only.
-- KEYS[1]: prefix. ARGV: now.
-- Returns: their names.
-- uses: call
return call('ZRANGEBYSCORE', P .. 'leases', '(' .. string.format('%.17g', now), '+inf')
