-- schedules: read all schedules.
-- KEYS[1]: prefix. ARGV: now.
-- Returns: name and packed schedule in turn; name and rule in turn.
-- uses: schedules
return {call('HGETALL', SCHEDULES), call('HGETALL', SCHEDULE_RULES)}
