-- Steps of one task: arrive, leave, wait to be ended, back again.
local function arrive(r) -- due: into ready, or behind its lane, from where the first by rank are let in
  if not r.lane then return enter(r, 'ready') end
  flush()
  if call('EXISTS', PARKED .. r.lane) == 0 and has_capacity(lane(r.lane), cost(r)) then return enter(r, 'ready') end
  enter(r, 'parked')
  admit(r.lane)
  overtake(r)
end

local function leave(r, state) -- out of its place, not by being taken
  flush()
  count(r.source, state, -1)
  disarm(r, state)
  if state == 'ready' then call('ZREM', queue(r), member(r)) end
  if not r.lane or state == 'scheduled' then return end
  if state == 'ready' then
    admitted(lane(r.lane), r, -1)
  else
    call('ZREM', PARKED .. r.lane, r.seq)
  end
  admit(r.lane) -- its slot is free, or it stood in the way of those that need less
end

local function end_as_chore(r, why) -- counted where it was; whoever holds it settles it
  r.why = why
  save(r)
  count(r.source, r.state, 1)
  log_transition(r.state, r.seq)
end

local function queue_chore(r, why) -- a lifted one waits for whoever lifts it again, unless it is to be cancelled
  if why == 'lifted' and r.cancel then why = 'cancel' end
  end_as_chore(r, why)
  if why == 'lifted' then return end
  buffer(orders, CHORE, next_number('chores'), r.seq)
  notified[''] = true -- of no source, but somebody has to end it
end

local function requeue(r, after) -- back to where it came from, or later; or to the chores, if it must end
  if r.cancel or CHORE_REASONS[r.why] then
    r.state = 'ready'
    return queue_chore(r, r.cancel and 'cancel' or r.why)
  end
  if after then r.due = due_in(after) end
  save(r)
  enter(r, r.due > now and 'scheduled' or (r.lane and 'parked' or 'ready'))
end

local function release_capacity(r) -- what it held is free: a limit may let another one in now, or itself again, by rank
  if r.lane then
    admit(r.lane)
    overtake(r)
  end
  if declared() and effective(r.source) then woken[r.source], notified[r.source] = true, true end
  if not is_suspect(r) then return end
  for _, field in ipairs(call('HKEYS', TALLY)) do
    local source = field:match('^(.*):ready$')
    if source and call('EXISTS', SUSPECT .. source) == 1 then woken[source], notified[source] = true, true end
  end
end
