-- heartbeat: renew a session for another lease; the first heartbeat opens it.
-- KEYS[1]: prefix. ARGV: now, session, info, lease.
-- Returns: alive, uuid and fence in turn of its runs that are to be cancelled.
-- uses: record_format leases
local session, lease_ms, cancel_requests = ARGV[2], tonumber(ARGV[4]), {}
if call('ZSCORE', P .. 'dead_sessions', session) then return {0} end
call('ZREM', SESSION_LEASES, session) -- first: after a deletion a full server allows the other writes
call('HSET', WORKERS, session, ARGV[3])
call('HSETNX', SEQUENCES, 'identity', redis.sha1hex(session .. string.format('%.17g', now))) -- names of sessions are random
call('ZADD', SESSION_LEASES, now + lease_ms, session)
for _, seq in ipairs(call('SMEMBERS', CANCEL_REQUESTS .. session)) do
  local fence = tonumber(call('HGET', LEASED, seq) or nil)
  local claim, r = fence and claim_of(fence), fence and load(seq)
  if claim and claim[1] == session and r and r.uuid and r.cancel_requested and not UNQUEUED_REASONS[r.reason] then
    cancel_requests[#cancel_requests + 1] = r.uuid
    cancel_requests[#cancel_requests + 1] = fence
  else
    call('SREM', CANCEL_REQUESTS .. session, seq)
  end
end
redis.pcall('PUBLISH', P .. 'to:' .. session, '') -- shows the subscriber that its connection is not half open
return {1, cancel_requests}
