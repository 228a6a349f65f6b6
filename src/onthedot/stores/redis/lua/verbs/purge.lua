-- purge: delete ended tasks past their time, or the oldest beyond a number; results and unique keys past theirs, idle lanes.
-- KEYS[1]: prefix. ARGV: now, limit, the most ended tasks to keep.
-- Returns: the number of deleted tasks; 1 if the call reached its bound and there may be more, else 0.
-- uses: retention
local limit, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local dropped, checked = drop_retained('retention', limit, now, limit)
flush()
local excess = -most
for _, state in ipairs({'succeeded', 'failed', 'cancelled'}) do excess = excess + ended_in(state) end
if excess > 0 and dropped < limit and checked < limit then
  local more_dropped, more_checked = drop_retained('retention_ended', math.min(limit - dropped, excess), '+inf', limit - checked)
  dropped = dropped + more_dropped
  checked = checked + more_checked
end
drop_results(limit)
for _, field in ipairs(call('ZRANGEBYSCORE', UNIQUE_KEY_UNTIL, '-inf', now, 'LIMIT', 0, limit)) do
  call('HDEL', UNIQUE_KEYS, field)
  call('ZREM', UNIQUE_KEY_UNTIL, field)
end
forget_recent_uuids(limit)
for _, name in ipairs(call('ZRANGEBYSCORE', IDLE_LANES, '-inf', now, 'LIMIT', 0, limit)) do
  call('ZREM', IDLE_LANES, name)
  lane(name).changed = true -- saving it deletes it, unless it is in use again
end
commit()
return {dropped, checked >= limit and dropped < limit and 1 or 0}
