-- drop: schedules that are no more.
-- KEYS[1]: prefix. ARGV: now, names.
-- uses: prelude
for i = 2, #ARGV do
  call('HDEL', P .. 'schedules', ARGV[i])
  call('HDEL', P .. 'schedule_rules', ARGV[i])
  call('ZREM', P .. 'schedule_due', ARGV[i])
end
