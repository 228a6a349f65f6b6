-- Taking: which ready tasks a claim gets, by (rank, seq) over all sources, within room and limits.
local parked_now, suspects_left = 0, 0 -- how many were parked in this call; how many suspects the session may still take

local function look(q) -- at the next of a queue, by pages
  if not q.items[q.next] then
    if q.over then return end
    q.offset, q.next = q.offset + #q.items / q.step, 1
    local last = q.offset + q.page - 1
    q.items = q.step == 1 and call('ZRANGE', q.key, q.offset, last) or call('ZRANGE', q.key, q.offset, last, 'WITHSCORES')
    q.over = #q.items < q.step * q.page
  end
  q.member, q.rank = q.items[q.next], q.step == 2 and tonumber(q.items[q.next + 1])
  return q.member
end

local function may_start_task(member_) -- the last look at its lane; not open any more: parked
  local r = load(member_:sub(1, 6))
  if not r.lane then
    disarm(r, 'ready')
    return true
  end
  local l = lane(r.lane)
  admitted(l, r, -1)
  if not may_start(l, cost(r)) then
    count(r.source, 'ready', -1)
    enter(r, 'parked')
    parked_now = parked_now + 1
    return false
  end
  disarm(r, 'ready')
  running(l, 1)
  local first = call('ZRANGE', PARKED .. r.lane, 0, 0)[1]
  if first then has_capacity(l, cost(load(first))) end -- from now on time may open it for the next
  return true
end

local function first_of(queues_, left) -- the queue whose head is first
  local best
  for i = 1, #queues_ do
    local q = queues_[i]
    if left[q.source] > 0 and (not q.doubtful or suspects_left > 0) and look(q) then
      local tie = best and q.rank == best.rank
      if not best or q.rank < best.rank or (tie and number_of(q.member) < number_of(best.member)) then best = q end
    end
  end
  return best
end

