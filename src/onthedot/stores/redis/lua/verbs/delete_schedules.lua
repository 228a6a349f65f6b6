-- delete_schedules: delete schedules by name.
-- KEYS[1]: prefix. ARGV: now, names.
-- Returns: nothing.
-- uses: schedules
for i = 2, #ARGV do
  call('HDEL', SCHEDULES, ARGV[i])
  call('HDEL', SCHEDULE_RULES, ARGV[i])
  call('ZREM', SCHEDULE_DUE, ARGV[i])
end
