-- The end of a session: its tasks are requeued, one batch per call. It stays overdue until all are.
-- uses: leases requeue
local function take_leased(session, most) -- {record, start} each
  local taken = {}
  for _, fence in ipairs(call('SMEMBERS', CLAIMS_OF .. session)) do
    fence = tonumber(fence)
    local seqs = leased_under(fence)
    if #seqs == 0 then drop_claim(fence, session) end -- as an aborted script leaves it
    while #seqs > most - #taken do seqs[#seqs] = nil end
    local tasks, histories = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
    for i, seq in ipairs(seqs) do
      taken[#taken + 1] = {record = to_record(seq, tasks[i], histories[i]), started = claim_of(fence)[2]}
    end
    if #seqs > 0 then release_leases(fence, session, seqs) end
  end
  return taken
end

local function by_rank(a, b)
  local first, second = rank(a.record), rank(b.record)
  return first < second or (first == second and number_of(a.record.seq) < number_of(b.record.seq))
end

local function release_session(session, cause, most) -- cause: "closed", or whose crash counts: "all" | "suspects"
  local taken = take_leased(session, most)
  for _, each in ipairs(taken) do
    local r = each.record
    if release(r, 1) then
      queue_chore(r, r.reason)
    else
      if cause ~= 'closed' then after_crash(r, each.started, cause == 'all' or is_suspect(r)) end
      requeue(r)
    end
  end
  table.sort(taken, by_rank)
  for _, each in ipairs(taken) do release_capacity(each.record, is_suspect(each.record)) end
  if call('EXISTS', CLAIMS_OF .. session) == 0 then
    call('ZREM', SESSION_LEASES, session)
    local subscriptions = P .. 'subscriptions:' .. session
    for _, seq in ipairs(call('SMEMBERS', subscriptions)) do call('SREM', P .. 'subscribers:' .. number_of(seq), session) end
    call('DEL', SESSION .. session, CANCEL_REQUESTS .. session, subscriptions)
  end
  return #taken
end

local function reap_session(session, closed, most) -- a suspect that ran caused the crash; without one, any run may have
  local reaping, suspects = unpack(call('HMGET', SESSION .. session, 'reaping', 'suspects'), 1, 2)
  local cause = reaping or (closed and 'closed') or ((tonumber(suspects) or 0) > 0 and 'suspects' or 'all')
  call('HDEL', WORKERS, session)
  call('HDEL', IDLE_WORKERS, session)
  if not closed and not reaping then
    call('ZADD', P .. 'dead_sessions', next_number('dead_sessions'), session)
    call('ZREMRANGEBYRANK', P .. 'dead_sessions', 0, -10001)
  end
  local done = release_session(session, cause, most)
  if call('ZSCORE', SESSION_LEASES, session) then
    call('ZADD', SESSION_LEASES, 0, session)
    call('HSET', SESSION .. session, 'reaping', cause)
  end
  return done
end

local function reap_overdue() -- true: there may be more
  local done = 0
  for _, session in ipairs(call('ZRANGEBYSCORE', SESSION_LEASES, '-inf', now, 'LIMIT', 0, 100)) do
    if done >= BATCH then return true end
    done = done + 1 + reap_session(session, false, BATCH - done)
  end
  return done > 100
end
