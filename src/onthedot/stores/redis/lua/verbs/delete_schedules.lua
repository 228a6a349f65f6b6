-- drop: schedules that are no more.
-- KEYS[1]: prefix. ARGV: now, names.
-- uses: prelude
for i = 2, #ARGV do
  call('HDEL', P .. 'schedules', ARGV[i])
  call('HDEL', P .. 'rules', ARGV[i])
  call('ZREM', P .. 'schedule_at', ARGV[i])
end
