-- The end of a session: what it holds goes back, a batch a call. It stays overdue until all has gone.
local function give_back(session, how, most) -- how: "closed" | "all" | "suspects": whose crash counts; answers what it did
  local held, done = {}, 0
  for _, fence in ipairs(call('SMEMBERS', CLAIMS_OF .. session)) do
    fence = tonumber(fence)
    local seqs = under(fence)
    while #seqs > most - done do seqs[#seqs] = nil end
    local asked, past = several(TASK, seqs), several(PAST, seqs)
    for i, seq in ipairs(seqs) do
      held[#held + 1] = {to_record(seq, asked[i], past[i]), claim_of(fence)[2]}
    end
    done = done + #seqs
    if #seqs > 0 then let_go(fence, session, seqs) end
  end
  for _, each in ipairs(held) do
    local r = each[1]
    if release(r) then
      wait_to_end(r, r.why)
    else
      if how ~= 'closed' then
        local counts_ = how == 'all' or suspect(r)
        r.crashes = r.crashes + (counts_ and 1 or 0)
        r.why = r.crashes >= (r.policy.m or 3) and not r.cancel and 'crashed' or 'crash'
        r.started = each[2]
      end
      again(r)
    end
  end
  table.sort(held, function(a, b)
    local first, second = rank(a[1]), rank(b[1])
    return first < second or (first == second and number_of(a[1].seq) < number_of(b[1].seq))
  end)
  for _, each in ipairs(held) do freed(each[1]) end
  return done
end

local function go_on_burying(session, how, most)
  local done = give_back(session, how, most)
  if call('EXISTS', CLAIMS_OF .. session) == 0 then
    call('ZREM', LEASES, session)
    call('DEL', SESSION .. session, WANTED .. session)
  end
  return done
end

local function bury(session, closed, most) -- a suspect that ran took it down; without one, any run may have done it
  local f = call('HMGET', SESSION .. session, 'dying', 'suspects')
  local how = f[1] or (closed and 'closed') or ((tonumber(f[2]) or 0) > 0 and 'suspects' or 'all')
  call('HDEL', WORKERS, session)
  call('HDEL', WAITING, session)
  if not closed and not f[1] then
    call('ZADD', GRAVES, next_number('graves'), session)
    call('ZREMRANGEBYRANK', GRAVES, 0, -10001)
  end
  local done = go_on_burying(session, how, most)
  if call('ZSCORE', LEASES, session) then
    call('ZADD', LEASES, 0, session)
    call('HSET', SESSION .. session, 'dying', how)
  end
  return done
end
