-- Leased tasks that are put back: release, requeue, and the capacity that becomes free.
-- uses: places
local function release(r, number) -- tasks have no place until they enter one, become chores, or end; true: it was a chore
  local chore = UNQUEUED_REASONS[r.reason]
  count(r.source, chore and r.state or 'running', -number)
  if r.lane and not chore then add_running(lane(r.lane), -number) end
  return chore
end

local function requeue(r, after)
  local due_before = r.due
  if after then r.due = due_in(after) end
  local place = next_place(r, false) -- parked: release_capacity admits by rank, once all tasks of the call are back
  if place == 'chore' then
    r.due = due_before
    clear_wait(r, 'ready')
    local damaged = r.policy.undecodable and not UNQUEUED_REASONS[r.reason]
    return queue_chore(r, r.cancel_requested and 'cancel' or damaged and 'undecodable' or r.reason)
  end
  save(r)
  enter(r, place)
end

local function release_capacity(r, was_suspect) -- of a task that was running: a limit may admit another, or itself again
  if r.lane then
    admit(r.lane)
    overtake(r)
  end
  if has_limits() and effective(r.source) then woken[r.source], notified[r.source] = true, true end
  if not was_suspect then return end
  for _, field in ipairs(call('HKEYS', TALLY)) do
    local source = field:match('^(.*):ready$')
    if source and call('EXISTS', SUSPECT .. source) == 1 then woken[source], notified[source] = true, true end
  end
end
