-- The end of a session: what it holds goes back, a batch a call. It stays overdue until all has gone.
local function release_session(session, how, most) -- how: "closed" | "all" | "suspects": whose crash counts; answers what it did
  local held, done = {}, 0
  for _, fence in ipairs(call('SMEMBERS', CLAIMS_OF .. session)) do
    fence = tonumber(fence)
    local seqs = leased_under(fence)
    while #seqs > most - done do seqs[#seqs] = nil end
    local asked, past = read_fields(TASK, seqs), read_fields(HISTORY, seqs)
    for i, seq in ipairs(seqs) do
      held[#held + 1] = {to_record(seq, asked[i], past[i]), claim_of(fence)[2]}
    end
    done = done + #seqs
    if #seqs > 0 then release_leases(fence, session, seqs) end
  end
  for _, each in ipairs(held) do
    local r = each[1]
    if release(r) then
      queue_chore(r, r.why)
    else
      if how ~= 'closed' then
        local counts_ = how == 'all' or is_suspect(r)
        r.crashes = r.crashes + (counts_ and 1 or 0)
        r.why = r.crashes >= (r.policy.m or 3) and not r.cancel and 'crashed' or 'crash'
        r.started = each[2]
      end
      requeue(r)
    end
  end
  table.sort(held, function(a, b)
    local first, second = rank(a[1]), rank(b[1])
    return first < second or (first == second and number_of(a[1].seq) < number_of(b[1].seq))
  end)
  for _, each in ipairs(held) do release_capacity(each[1]) end
  return done
end

local function continue_reap(session, how, most)
  local done = release_session(session, how, most)
  if call('EXISTS', CLAIMS_OF .. session) == 0 then
    call('ZREM', SESSION_LEASES, session)
    call('DEL', SESSION .. session, CANCEL_REQUESTS .. session)
  end
  return done
end

local function reap_session(session, closed, most) -- a suspect that ran took it down; without one, any run may have done it
  local f = call('HMGET', SESSION .. session, 'reaping', 'suspects')
  local how = f[1] or (closed and 'closed') or ((tonumber(f[2]) or 0) > 0 and 'suspects' or 'all')
  call('HDEL', WORKERS, session)
  call('HDEL', IDLE_WORKERS, session)
  if not closed and not f[1] then
    call('ZADD', DEAD_SESSIONS, next_number('dead_sessions'), session)
    call('ZREMRANGEBYRANK', DEAD_SESSIONS, 0, -10001)
  end
  local done = continue_reap(session, how, most)
  if call('ZSCORE', SESSION_LEASES, session) then
    call('ZADD', SESSION_LEASES, 0, session)
    call('HSET', SESSION .. session, 'reaping', how)
  end
  return done
end
