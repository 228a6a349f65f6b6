-- purge: ended records past their time, or the oldest ends beyond the most; results past theirs, keys, idle lanes.
-- KEYS[1]: prefix. ARGV: now, limit, most.
-- Returns: how many records it dropped, and 1 if it looked at as much as a call may and there may be more.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps unique_keys finish retention change_log notify
local limit, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local dropped, looked = drop_retained('retention', limit, now, limit)
flush()
local beyond = -most
for _, state in ipairs({'succeeded', 'failed', 'cancelled'}) do beyond = beyond + ended_in(state) end
if beyond > 0 and dropped < limit and looked < limit then
  local more, seen = drop_retained('retention_ended', math.min(limit - dropped, beyond), '+inf', limit - looked)
  dropped, looked = dropped + more, looked + seen
end
drop_results(limit)
for _, field in ipairs(call('ZRANGEBYSCORE', UNIQUE_KEY_UNTIL, '-inf', now, 'LIMIT', 0, limit)) do
  call('HDEL', UNIQUE_KEYS, field)
  call('ZREM', UNIQUE_KEY_UNTIL, field)
end
for _, name in ipairs(call('ZRANGEBYSCORE', IDLE_LANES, '-inf', now, 'LIMIT', 0, limit)) do
  call('ZREM', IDLE_LANES, name)
  lane(name).changed = true -- saving it finds out whether it is still in use
end
finish()
return {dropped, looked >= limit and dropped < limit and 1 or 0}
