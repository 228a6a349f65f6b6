-- heartbeat: renew a session for another lease; the first one opens it.
-- KEYS[1]: prefix. ARGV: now, session, info, lease.
-- Returns: alive, uuid and fence in turn of its runs that are to be cancelled.
-- uses: prelude write_buffer policies records tallies limits lanes lanes_enter places_enter places_admit places_steps sessions reap change_log notify
local session, lease, wanted = ARGV[2], tonumber(ARGV[4]), {}
caller = session
if call('ZSCORE', DEAD_SESSIONS, session) then return {0} end
call('ZREM', SESSION_LEASES, session) -- first: after a deletion a full server lets the rest through
call('HSET', WORKERS, session, ARGV[3])
call('ZADD', SESSION_LEASES, now + lease, session)
for _, seq in ipairs(call('SMEMBERS', CANCEL_REQUESTS .. session)) do
  local fence = tonumber(call('HGET', LEASED, seq) or nil)
  local claim, r = fence and claim_of(fence), fence and load(seq)
  if claim and claim[1] == session and r.cancel and not CHORE_REASONS[r.why] then
    wanted[#wanted + 1] = r.uuid
    wanted[#wanted + 1] = fence
  else
    call('SREM', CANCEL_REQUESTS .. session, seq)
  end
end
redis.pcall('PUBLISH', P .. 'to:' .. session, '') -- a connection that hears it is not half open
return {1, wanted}
