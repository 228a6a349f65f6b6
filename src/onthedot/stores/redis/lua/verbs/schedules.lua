-- schedules: all of them.
-- KEYS[1]: prefix. ARGV: now.
-- Returns: name and packed schedule in turn; name and rule in turn.
-- uses: prelude
return {call('HGETALL', P .. 'schedules'), call('HGETALL', P .. 'schedule_rules')}
