-- Which ready tasks a claim takes from a pool: by (rank, seq) over its sources, within capacity and limits.
-- A pool: total, then source and capacity in turn.
-- uses: places capacity
local parked_now = 0 -- tasks that this call has parked
local suspects_left = 0 -- suspects that the session may still take

local function peek(q) -- the next member of a queue, read by pages
  if not q.items[q.next] then
    if q.exhausted then return end
    q.offset, q.next = q.offset + #q.items / q.step, 1
    local last = q.offset + q.page - 1
    q.items = q.step == 1 and call('ZRANGE', q.key, q.offset, last) or call('ZRANGE', q.key, q.offset, last, 'WITHSCORES')
    q.exhausted = #q.items < q.step * q.page
  end
  q.member, q.rank = q.items[q.next], q.step == 2 and tonumber(q.items[q.next + 1])
  return q.member
end

local function end_unreadable(r) -- it was ready
  if r.lane then add_admitted(lane(r.lane), r, -1) end
  clear_alarm(r, 'ready')
  count(r.source, 'ready', -1)
  r.state = 'ready'
  queue_chore(r, 'undecodable')
end

local function check_start(marked) -- of a member with lane or alarm; false: its lane has no capacity any more, it is parked
  local r = load(marked:sub(1, 6))
  if not r then return false end
  if r.policy.undecodable then
    end_unreadable(r)
    return false
  end
  if not r.lane then
    clear_alarm(r, 'ready')
    return true
  end
  local l = lane(r.lane)
  add_admitted(l, r, -1)
  if not may_start(l, cost(r)) then
    count(r.source, 'ready', -1)
    enter(r, 'parked')
    parked_now = parked_now + 1
    return false
  end
  clear_alarm(r, 'ready')
  add_running(l, 1)
  local first = call('ZRANGE', PARKED .. r.lane, 0, 0)[1]
  local waiting = first and load(first)
  if waiting then has_capacity(l, cost(waiting)) end -- sets the refill for the first parked task
  return true
end

local function first_queue(queues, left) -- the queue with the first member by (rank, seq)
  local best
  for i = 1, #queues do
    local q = queues[i]
    if left[q.source] > 0 and (not q.suspect or suspects_left > 0) and peek(q) then
      local tie = best and q.rank == best.rank
      if not best or q.rank < best.rank or (tie and number_of(q.member) < number_of(best.member)) then best = q end
    end
  end
  return best
end

local function queues_of(pool, left)
  local queues, total = {}, pool[1]
  for i = 2, #pool, 2 do
    local source, most = pool[i], math.min(pool[i + 1], total)
    if most > 0 then most = math.min(most, (source_capacity(source))) end
    left[source] = most
    for _, kind in ipairs(most > 0 and {READY, SUSPECT} or {}) do
      if call('EXISTS', kind .. source) == 1 then
        queues[#queues + 1] = {
          key = kind .. source, source = source, suspect = kind == SUSPECT, page = most, offset = 0, next = 1, items = {},
        }
      end
    end
  end
  for _, q in ipairs(queues) do q.step = #queues > 1 and 2 or 1 end -- a single queue needs no ranks
  return queues
end

local function pick(pool, tasks)
  local left, started, number, before = {}, {}, 0, #tasks
  local queues = queues_of(pool, left)
  while number < pool[1] and parked_now < BATCH do
    local q = first_queue(queues, left)
    if not q then break end
    q.next = q.next + q.step
    local seq = q.member:sub(1, 6)
    if seq == q.member or check_start(q.member) then
      number = number + 1
      tasks[before + number] = seq
      left[q.source] = left[q.source] - 1
      append(started, q.source, seq)
      if q.suspect then suspects_left = suspects_left - 1 end
    end
  end
  for _, q in ipairs(queues) do
    local passed = q.offset + (q.next - 1) / q.step
    if passed > 0 then call('ZREMRANGEBYRANK', q.key, 0, passed - 1) end
  end
  for source, seqs in pairs(started) do
    log_transition(source, 'running', table.concat(seqs), #seqs)
    start(source, #seqs)
  end
end
