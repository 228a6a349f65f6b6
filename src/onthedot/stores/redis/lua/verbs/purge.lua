-- purge: delete ended tasks past their time, or the oldest beyond a number; results, signals, counters and
-- unique keys past theirs, idle lanes. Ended members of a living flow are kept.
-- KEYS[1]: prefix. ARGV: now, limit, the most ended tasks to keep; then name, age and number to keep of each series.
-- Returns: the number of deleted tasks; 1 if the call reached its bound and there may be more, else 0.
-- uses: retention counter_retention series
local limit, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local dropped, checked, kept = drop_retained('retention', limit, now, limit)
flush()
local excess = -most
for _, state in ipairs({'succeeded', 'failed', 'cancelled'}) do excess = excess + ended_in(state) end
if excess > 0 and dropped < limit and checked < limit then
  local last = '(' .. text_of(at + DAY) -- not the members that this call has kept
  local more_dropped, more_checked, more_kept = drop_retained('retention_ended', math.min(limit - dropped, excess), last, limit - checked)
  dropped = dropped + more_dropped
  checked = checked + more_checked
  kept = kept + more_kept
end
drop_results(limit)
drop_signals(limit)
drop_dirty_counters(limit)
drop_counters(limit)
drop_series({unpack(ARGV, 4)}, limit)
for _, field in ipairs(call('ZRANGEBYSCORE', P .. 'unique_key_until', '-inf', now, 'LIMIT', 0, limit)) do
  call('HDEL', P .. 'unique_keys', field)
  call('ZREM', P .. 'unique_key_until', field)
end
forget_recent_uuids(limit)
for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'idle_lanes', '-inf', now, 'LIMIT', 0, limit)) do
  call('ZREM', P .. 'idle_lanes', name)
  lane(name).changed = true -- saving it deletes it, unless it is in use again
end
commit()
return {dropped, checked >= limit and dropped < limit and kept < checked and 1 or 0}
