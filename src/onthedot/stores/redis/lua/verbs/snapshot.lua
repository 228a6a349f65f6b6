-- state: schedules, limits, and who is here. Reads only.
-- KEYS[1]: prefix. ARGV: now.
-- Returns: schedules, rules, limits and workers, name and value in turn; sessions whose lease is not over, whether somebody
--   has buried the others or not.
-- uses: prelude
return {
  call('HGETALL', P .. 'schedules'), call('HGETALL', P .. 'rules'), call('HGETALL', P .. 'limits'),
  call('HGETALL', P .. 'workers'), call('ZRANGEBYSCORE', P .. 'leases', '(' .. string.format('%.17g', now), '+inf'),
}
